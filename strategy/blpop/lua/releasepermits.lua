local lock, permits = unpack(KEYS)
local claim, turns, places, channel, publish = unpack(ARGV)
channel, publish = channel or 'redisson_lock__channel:{' .. lock .. '}', publish or 'PUBLISH'
-- Reply: 1 given back, 0 the claim has none
--
-- Sent twice or late: the second run finds nothing of this claim, neither permits nor a place in the line, where its
-- process may wait with a later claim by now. A push is a hint, and may come twice.
--
-- turns and places are arguments and no keys, as the queue of release.lua is: where they cannot be seen, nobody
-- is woken.

-- fence.lua
-- permits.lua
-- turns.lua

local fields = fields_of(lock, '', '>', claim) or {}
local _, out = head_of(fields[1])
local now = math.floor(clock() / 1000)
local bidder, _, since, left = bid_of(fields[2], now)
local line, waited = redis.pcall('EXISTS', turns, places) == 2, false
if line then
  local place = redis.call('HGET', places, locker_of(claim))
  waited = place and string.match(place, '^%S+') == claim
  if waited then
    leave_turns(turns, places, locker_of(claim))
  end
end
if not out or not (fields[3] or waited or bidder == claim) then
  return 0
end

-- The bid is that of the first in line from now on, unless one that is not in the line has waited longer.
local first = line and line_of(turns, places, now)()
local stays = bidder and bidder ~= claim and
  not (first and (redis.call('HGET', places, locker_of(bidder)) or since > first.since / 1000))
if not stays then
  left = first and BID
end
local held = false
if fields[3] then
  out, held = give_back(lock, permits, fields, claim, now, left or nil)
elseif out == 0 and not left then
  redis.call('DEL', lock)
end
if first and not stays then
  redis.call('HSET', lock, '>', string.format('%s %d %.0f %d', first.claim, first.count, first.since / 1000, first.heard))
  last_for(lock, permits, BID)
elseif not stays then
  redis.call('HDEL', lock, '>')
end
if first then
  wake_line(turns, places, out, now)
end
redis.pcall(publish, channel, '0')
return held and 1 or 0
