local lock, permits = unpack(KEYS)
local claim, ttl, retention, fence = unpack(ARGV)
-- Reply: 1 renewed, 0 the claim has none
--
-- Sent twice or late: at worst it lasts longer; what has ended is not made again, swept or not.
--
-- A server that is out of memory refuses ZADD as the first write of a script, and behind another write it
-- does not. HDEL of a field that no hash has (claims are UTF-8) is one that changes nothing.

-- fence.lua
-- keep.lua
-- permits.lua

local fields = fields_of(lock, claim)
if not fields or not fields[1] then
  return 0
end
local now = math.floor(clock() / 1000)
local ended = tonumber(redis.call('ZSCORE', permits, claim)) -- nil: the set was lost
if ended and ended <= now then
  return 0
end
if not ended or ended < now + ttl then
  redis.call('HDEL', lock, '\255')
  redis.call('ZADD', permits, now + ttl, claim)
  last_for(lock, permits, ttl)
end
keep(fence, retention)
return 1
