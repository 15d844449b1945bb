local lock, fence = unpack(KEYS)
local claim, retention, channel, publish, token = unpack(ARGV)
-- Reply: 1 freed on this node, 0 the claim does not have the key here
--
-- Sent twice or late: the second run finds another claim or nothing, and touches
-- neither. A user who may not publish must be able to unlock nevertheless.
--
-- A node that knows of the token will propose the same one as the others next time,
-- which spares that grant its second round. It comes last, and may fail: a server that
-- is out of memory must free the lock all the same.

-- token.lua

local held = redis.pcall('GET', lock) == claim
if held then
  redis.call('DEL', lock)
  redis.pcall(publish, channel, '0')
end
pcall(function() raise_token(fence, token, retention) end)
return held and 1 or 0
