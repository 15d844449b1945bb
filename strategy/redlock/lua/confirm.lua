local lock, fence = unpack(KEYS)
local claim, retention, token = unpack(ARGV) -- the last of those reserved
-- Reply: 1 written, 0 the claim does not have the key on this node
--
-- The second round of a grant: the greatest proposal of the first round becomes the
-- token, once a majority that still has the claim has written it down. Any later
-- grant meets a node of that majority, whose next proposal is greater. Sent twice:
-- a maximum.

-- keep.lua
-- token.lua

if redis.pcall('GET', lock) ~= claim then
  return 0
end
raise_token(fence, token, retention)
return 1
