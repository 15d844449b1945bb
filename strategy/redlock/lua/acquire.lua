local lock, fence = unpack(KEYS)
local claim, ttl, retention, tokens = unpack(ARGV)
tokens = tokens or 1
-- Reply: {1, first token} granted on this node; {0, ms remaining or -1, 1 if the holder's
--        release gives no wake-up else 0, the holder if it is one of ours} held by another; {-1, type} not a lock
--
-- The tokens are this node's proposal; see token.lua. Sent twice: a claim that has the
-- key is granted again with the same proposal or, if another node's proposal was written
-- back meanwhile, with the other node's.

-- shared.lua
-- keep.lua
-- token.lua

if redis.call('SET', lock, claim, 'NX', 'PX', ttl) then
  return {1, propose(fence, retention, tokens)}
end

local holder, no_wakeup = redis.pcall('GET', lock), 1
if type(holder) == 'table' then -- an error: no string
  local kind = redis.call('TYPE', lock).ok
  if kind ~= 'hash' then
    return {-1, kind}
  end
elseif holder == claim then
  extend(lock, ttl)
  return {1, proposed(fence, retention, tokens)}
elseif string.find(holder, '^%x+%-%x+%-8%x+%-%x+%-%x+:') then
  no_wakeup = 0 -- ours begin with a version 8 UUID; redsync and others publish nothing
end
return {0, redis.call('PTTL', lock), no_wakeup, no_wakeup == 0 and holder or ''}
