local lock = unpack(KEYS)
local claim, ttl, retention, fence, owner = unpack(ARGV)
owner = owner or '' -- unless named
-- Reply: 1 renewed, 0 the claim does not hold the key
--
-- Sent twice or late: the claim id was never and will never be another grant's,
-- so at worst the present grant lasts longer. A lock that is gone is not made again.

-- claim.lua
-- shared.lua
-- keep.lua

if owner == '' and is_alone(lock, claim) then
  extend(lock, ttl)
  keep(fence, retention)
  return 1
end

-- fence.lua
-- take.lua
-- holds.lua

if not change(lock, claim, owner, {ttl = tonumber(ttl)}) then
  return 0
end
keep(fence, retention)
return 1
