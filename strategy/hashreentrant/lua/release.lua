-- KEYS: the lock, its fencing counter (unused)
-- ARGV: claim id, owner, TTL (unused), retention (unused), the channel, PUBLISH or SPUBLISH
-- Reply: 1 given back, 0 the claim does not hold the key
--
-- Sent twice or late: the second run finds nothing of this claim and touches
-- nothing. Only the run that deletes the key publishes, in the same step, so that
-- no release goes untold. A server or user that may not publish must not keep
-- the lock from being freed: waiters look about once a second anyway.

local total = leave(KEYS[1], ARGV[1], ARGV[2])
if not total then
  return 0
end
if total <= 0 then
  redis.call('DEL', KEYS[1])
  redis.pcall(ARGV[6], ARGV[5], '0')
end
return 1
