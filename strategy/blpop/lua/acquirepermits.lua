local lock, permits, turns, places, fence = unpack(KEYS)
local claim, ttl, retention, tokens, owner, weight, limit, waited, inbox, blocks = unpack(ARGV)
-- waited: for how long the caller has waited, in ms; '' if it does not wait. blocks: 1 if it blocks on
-- its inbox else 0
-- Reply: that of acquirepermits.lua in internal/redisdriver
--
-- Sent twice, late, or without a reply: as there. The place that a run takes which arrives after the release of its
-- claim is void after BID ms of silence; until then it holds up those behind it.

-- fence.lua
-- shared.lua
-- permits.lua
-- holder.lua
-- tell.lua
-- turns.lua

local WOKEN = false
local me, began = locker_of(claim), nil

-- Returns how many permits are to be left to those before this claim: `ahead` to the bidder, unless it is in the line,
-- and besides as many as the line needs. It is math.huge where some of the line cannot have theirs, whatever has ended: the
-- claims that have not are out, with one permit or more each.
local function line_before(bidder, ahead, now_us)
  began = waited >= 0 and now_us - waited * 1000 or math.huge
  if redis.call('EXISTS', turns) == 0 then
    return ahead
  end
  if bidder and redis.call('HGET', places, locker_of(bidder)) then
    ahead = 0
  end
  local before = waited >= 0 and tonumber(redis.call('ZSCORE', turns, me))
  if before and began - before >= BID * 1000 then
    leave_turns(turns, places, me) -- the place of a caller that does not wait any more, or the clock has jumped
  elseif before then
    began = math.min(began, before)
  end
  local now = math.floor(now_us / 1000)
  local alive = redis.call('ZCOUNT', permits, '(' .. now, '+inf')
  local wanted, room, n = 0, limit - weight, 0 -- room: how many may be out
  for w in line_of(turns, places, now) do
    if w.since > began or w.who == me and waited >= 0 then
      break
    elseif w.who ~= me then
      wanted, n = wanted + w.count, n + 1
      room = math.min(room, w.limit - wanted, limit - weight - wanted)
      if alive > room or n > MOST then
        return math.huge
      end
    end
  end
  return ahead + limit - weight - room
end

local function wait_in_line(ahead, now)
  redis.call('ZADD', turns, string.format('%.0f', began), me)
  redis.call('HSET', places, me, table.concat({claim, weight, limit, now, blocks, inbox}, ' '))
  for _, key in ipairs({turns, places}) do
    redis.call('PEXPIRE', key, KEEP)
  end
  if ahead == 0 then
    make_bid(lock, permits, claim, weight, now - math.floor(began / 1000), now)
  end
  return true
end

local function leave_line()
  leave_turns(turns, places, me)
end

local function is_line()
  return redis.call('EXISTS', turns) == 1
end

-- takepermits.lua
