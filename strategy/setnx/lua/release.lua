-- KEYS: the lock, its fencing counter (unused)
-- ARGV: claim id, owner (unused), TTL (unused), retention (unused)
-- Reply: 1 freed, 0 the claim does not hold the key
--
-- Sent twice or late: the second run finds another claim or nothing, and touches
-- neither. (GET of another type is an error value, equal to no claim.)

if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
return 1
