local lock = unpack(KEYS)
local claim, owner, channel, publish = unpack(ARGV)
owner = owner or '' -- unless named
channel, publish = channel or 'redisson_lock__channel:{' .. lock .. '}', publish or 'PUBLISH'
-- Reply: 0 the claim does not hold the key; 1 given back, and one more for each that the release
--        was sent to
--
-- Sent twice or late: the second run finds nothing of this claim and touches
-- nothing. Only the run that deletes the key publishes, in the same step, so that
-- no release goes untold. A server or user that may not publish must not keep
-- the lock from being freed: waiters look about once a second anyway.

-- claim.lua

if owner == '' and is_alone(lock, claim) then
  redis.call('DEL', lock)
  return 1 + (tonumber(redis.pcall(publish, channel, '0')) or 0)
end

-- fence.lua
-- take.lua
-- holds.lua

local total = change(lock, claim, owner, {count = 0})
if total == 0 then
  return 1 + (tonumber(redis.pcall(publish, channel, '0')) or 0)
end
return total and 1 or 0
