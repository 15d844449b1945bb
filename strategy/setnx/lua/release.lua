local lock = unpack(KEYS)
local claim = unpack(ARGV)
-- Reply: 1 freed, 0 the claim does not hold the key
--
-- Sent twice or late: the second run finds another claim or nothing, and touches
-- neither. (GET of another type is an error value, equal to no claim.)

if redis.pcall('GET', lock) ~= claim then
  return 0
end
redis.call('DEL', lock)
return 1
