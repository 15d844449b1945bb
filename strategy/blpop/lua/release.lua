-- KEYS: the lock, its fencing counter (unused), its queue, seen
-- ARGV: claim id, owner, TTL (unused), retention (unused), the channel, PUBLISH or SPUBLISH
-- Reply: 1 given back, 0 the claim does not hold the key
--
-- Sent twice or late: the second run finds nothing of this claim and touches
-- nothing. Only the run that frees the key passes it on, in the same step.

local total = leave(KEYS[1], ARGV[1], ARGV[2])
if not total then
  return 0
end
if total <= 0 then
  redis.call('DEL', KEYS[1])
  pass_on(KEYS[1], KEYS[3], KEYS[4], ARGV[5], ARGV[6])
end
return 1
