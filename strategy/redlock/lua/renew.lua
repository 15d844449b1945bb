local lock = unpack(KEYS)
local claim, ttl = unpack(ARGV)
-- Reply: 1 renewed, 0 the claim does not have the key on this node
--
-- Sent twice or late: the claim id was never and will never be another grant's.

-- shared.lua

if redis.pcall('GET', lock) ~= claim then
  return 0
end
extend(lock, ttl)
return 1
