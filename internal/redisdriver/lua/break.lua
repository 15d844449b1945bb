local lock = unpack(KEYS)
local id = unpack(ARGV) -- of a claim, or the string itself
-- Reply: 1 freed, 0 the lock is not that claim's
--
-- Sent twice or late: the second run finds nothing of that claim. (An error is a table.)

if redis.pcall('GET', lock) == id or redis.pcall('HEXISTS', lock, id) == 1 then
  redis.call('DEL', lock)
  return 1
end
return 0
