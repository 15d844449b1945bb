-- KEYS: the lock, its fencing counter
-- ARGV: claim id, owner, TTL (both unused), retention of the counter in ms, the token
-- Reply: 1 written, 0 the claim does not have the key on this node
--
-- The second round of a grant: the greatest proposal of the first round becomes the
-- token, once a majority that still has the claim has written it down. Any later
-- grant meets a node of that majority, whose next proposal is greater. Sent twice:
-- a maximum.

if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
raise_token(KEYS[2], ARGV[5], ARGV[4])
return 1
