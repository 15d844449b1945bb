-- KEYS: the lock, its fencing counter
-- ARGV: claim id, owner (unused), TTL in ms, retention of the counter in ms, the token
-- Reply: 1 the claim has the key on this node, 0 another has
--
-- Takes a held lock to a node that lacks it (it was away when the lock was granted,
-- or restarted empty). Sent only after a majority has just confirmed the claim, so
-- nobody else can be about to get one; and never after its release on this node.

local free = redis.call('EXISTS', KEYS[1]) == 0
if not free and redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
raise_token(KEYS[2], ARGV[5], ARGV[4])
if free then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
end
return 1
