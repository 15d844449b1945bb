-- KEYS: the lock, its fencing counter
-- ARGV: claim id, owner (unused), TTL in ms, retention of the counter in ms
-- Reply: {1, token} granted on this node; {0, ms remaining or -1, 1 if the holder's
--        release gives no wake-up else 0} held by another; {-1, type} not a lock
--
-- The token is this node's proposal; see token.lua. Sent twice: a claim that has the
-- key is granted again with the same proposal or, if another node's was written
-- back meanwhile, that one.

if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then
  return {1, propose(KEYS[2], ARGV[4])}
end

local holder, no_wakeup = redis.pcall('GET', KEYS[1]), 1
if type(holder) == 'table' then -- an error: no string
  local kind = type_of(KEYS[1])
  if kind ~= 'hash' then
    return {-1, kind}
  end
elseif holder == ARGV[1] then
  extend(KEYS[1], ARGV[3])
  return {1, proposed(KEYS[2], ARGV[4])}
elseif string.find(holder, '^%x+%-%x+%-8%x+%-%x+%-%x+:') then
  no_wakeup = 0 -- ours begin with a version 8 UUID; redsync and others publish nothing
end
return {0, redis.call('PTTL', KEYS[1]), no_wakeup}
