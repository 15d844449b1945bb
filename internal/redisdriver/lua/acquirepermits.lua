local lock, permits, fence = unpack(KEYS)
local claim, ttl, retention, tokens, owner, weight, limit, waited = unpack(ARGV)
-- waited: for how long the caller has waited, in ms; nil if it does not wait
-- Reply: {1, first token, how many if not all, free, limit before} granted; {0, ms until a claim ends or -1, 1 if the
--        holder's release gives no wake-up else 0, free, limit before, 1 if permits are kept free for the claim
--        else 0} refused; {-1, type} not a lock. The limit before is 0 if it was the same.
--
-- Sent twice: the second run finds the claim, and answers with its token; its end moves only
-- upwards. Reply lost: the claim is released, or ends with its TTL. A run that arrives after that release
-- takes permits for a claim that is not used any more: whoever sent it repeats the release. A claim that
-- has ended and was not swept is granted anew: nobody was granted its permits.

-- fence.lua
-- shared.lua
-- permits.lua
-- holder.lua
-- tell.lua

-- There is no line: who has waited longest bids.
local WOKEN = true

local function line_before(_, ahead)
  return ahead
end

local function wait_in_line(ahead, now)
  local bids = ahead == 0 and (weight > 1 or waited >= PATIENCE)
  if bids then
    make_bid(lock, permits, claim, weight, waited, now)
  end
  return bids
end

local function leave_line()
end

local function is_line()
  return false
end

-- takepermits.lua
