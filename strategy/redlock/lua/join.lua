local lock, fence = unpack(KEYS)
local claim, ttl, retention, token = unpack(ARGV)
-- Reply: 1 the claim has the key on this node, 0 another has
--
-- Takes a held lock to a node that lacks it (it was away when the lock was granted,
-- or restarted empty). Sent only after a majority has just confirmed the claim, so
-- no other claim can be about to get one; and never after its release on this node.

-- token.lua

local free = redis.call('EXISTS', lock) == 0
if not free and redis.pcall('GET', lock) ~= claim then
  return 0
end
raise_token(fence, token, retention)
if free then
  redis.call('SET', lock, claim, 'PX', ttl)
end
return 1
