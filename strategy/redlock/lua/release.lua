-- KEYS: the lock, its fencing counter
-- ARGV: claim id, owner, TTL (both unused), retention of the counter in ms, the
--       channel, PUBLISH or SPUBLISH, the claim's token if this node may not know it,
--       else 0
-- Reply: 1 freed on this node, 0 the claim does not have the key here
--
-- Sent twice or late: the second run finds another claim or nothing, and touches
-- neither. A user who may not publish must be able to unlock nevertheless.
--
-- A node that knows of the token will propose the same one as the others next time,
-- which spares that grant its second round. It comes last, and may fail: a server that
-- is out of memory must free the lock all the same.

local held = redis.pcall('GET', KEYS[1]) == ARGV[1]
if held then
  redis.call('DEL', KEYS[1])
  redis.pcall(ARGV[6], ARGV[5], '0')
end
pcall(function() raise_token(KEYS[2], ARGV[7], ARGV[4]) end)
return held and 1 or 0
