local lock, fence = unpack(KEYS)
local claim, retention, remaining, token = unpack(ARGV) -- ms of the lease; the last token of those reserved
-- Reply: 1 the claim has the key on this node, 0 another has
--
-- Takes a held lock to a node that lacks it (it was not needed for the grant, or away, or
-- restarted empty), for what remains of the lease. Sent only while a majority had the
-- claim when it was last asked, so no other claim can be about to get one; and never after
-- its release on this node. Sent twice: the second finds the claim there. Late: a release
-- that finds nothing after a join without an answer is repeated; a process that stood still
-- before it sent this keeps others off the node until the key expires, and nothing more.

-- keep.lua
-- token.lua

local free = redis.call('EXISTS', lock) == 0
if not free and redis.pcall('GET', lock) ~= claim then
  return 0
end
raise_token(fence, token, retention)
if free then
  redis.call('SET', lock, claim, 'PX', remaining)
end
return 1
