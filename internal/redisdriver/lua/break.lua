local lock = unpack(KEYS)
local claim = unpack(ARGV) -- or what the string is, whoever has set it
-- Reply: 1 freed, 0 the lock is not that claim's
--
-- Sent twice or late: a claim's id is never used again, so a second run finds nothing. A
-- value of another library may be there again by then; its users are told of that by
-- Admin.ForceUnlock. (An error is a table.)

if redis.pcall('GET', lock) == claim or redis.pcall('HEXISTS', lock, claim) == 1 then
  redis.call('DEL', lock)
  return 1
end
return 0
