local lock = unpack(KEYS)
local claim, ttl, retention, fence = unpack(ARGV)
-- Reply: 1 renewed, 0 the claim does not hold the key
--
-- Sent twice or late: the claim id was never and will never be another grant's,
-- so at worst the present grant lasts longer. A lock that is gone is not made again.

-- shared.lua
-- keep.lua

if redis.pcall('GET', lock) ~= claim then
  return 0
end
extend(lock, ttl)
keep(fence, retention)
return 1
