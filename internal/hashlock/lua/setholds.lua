local lock = unpack(KEYS)
local claim, owner, count = unpack(ARGV) -- owner: '' unless named; 1 or more holds
-- Reply: 1 set, 0 the claim does not hold the key
--
-- Sent twice: the count is absolute, so the second run changes nothing. The TTL
-- is left alone: re-entry neither extends nor shortens the lease.
--
-- A server that is out of memory refuses HSET as the first write of a script, and behind
-- another write it does not. HDEL of a field that no hash has (owners and claims are UTF-8)
-- is one that changes nothing.

-- claim.lua

if owner == '' and is_alone(lock, claim) then
  redis.call('HDEL', lock, '\255')
  redis.call('HSET', lock, claim, count)
  return 1
end

-- fence.lua
-- take.lua
-- holds.lua

return change(lock, claim, owner, {count = tonumber(count)}) and 1 or 0
