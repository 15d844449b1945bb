local lock = unpack(KEYS)
local claim, channel, publish = unpack(ARGV)
channel, publish = channel or 'locker:released:{' .. lock .. '}', publish or 'PUBLISH'
-- Reply: 1 freed on this node, 0 the claim does not have the key here
--
-- Sent twice or late: the second run finds another claim or nothing, and touches
-- neither. A user who may not publish must be able to unlock nevertheless.

if redis.pcall('GET', lock) ~= claim then
  return 0
end
redis.call('DEL', lock)
redis.pcall(publish, channel, '0')
return 1
