-- KEYS: the lock, its fencing counter (unused)
-- ARGV: claim id, owner, TTL, retention (all unused), the channel, PUBLISH or SPUBLISH
-- Reply: 1 freed on this node, 0 the claim does not have the key here
--
-- Sent twice or late: the second run finds another claim or nothing, and touches
-- neither. A user who may not publish must be able to unlock nevertheless.

if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
redis.pcall(ARGV[6], ARGV[5], '0')
return 1
