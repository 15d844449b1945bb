local lock, fence = unpack(KEYS)
local claim, ttl, retention = unpack(ARGV)
-- Reply: 1 renewed, 0 the claim does not have the key on this node
--
-- Sent twice or late: the claim id was never and will never be another grant's.

-- shared.lua
-- keep.lua

if redis.pcall('GET', lock) ~= claim then
  return 0
end
extend(lock, ttl)
keep(fence, retention)
return 1
