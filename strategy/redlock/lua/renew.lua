-- KEYS: the lock, its fencing counter (unused)
-- ARGV: claim id, owner (unused), TTL in ms, retention (unused)
-- Reply: 1 renewed, 0 the claim does not have the key on this node
--
-- Sent twice or late: the claim id was never and will never be another grant's.

if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
extend(KEYS[1], ARGV[3])
return 1
