-- KEYS: the lock, its fencing counter
-- ARGV: claim id, owner (unused), TTL in ms, retention of the counter in ms
-- Reply: {1, token} granted on this node; {0, ms left or -1, 1 if the holder sends
--        no notice when it releases} held by another; {-1, type} not a lock
--
-- The token is this node's proposal; see confirm.lua. Sent twice: a claim that has
-- the key is granted again with the same proposal or, if another node's was
-- written back meanwhile, that one.

local left = redis.call('PTTL', KEYS[1])
if left == -2 then
  local token = issue_token(KEYS[2], ARGV[4])
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
  return {1, token}
end

local kind = type_of(KEYS[1])
local silent = 1
if kind == 'string' then
  local holder = redis.call('GET', KEYS[1])
  if holder == ARGV[1] then
    extend(KEYS[1], ARGV[3])
    return {1, current_token(KEYS[2], ARGV[4])}
  end
  -- Ours begin with a version 8 UUID; redsync and others publish nothing.
  if string.find(holder, '^%x+%-%x+%-8%x+%-%x+%-%x+:') then
    silent = 0
  end
elseif kind ~= 'hash' then
  return {-1, kind}
end
return {0, left, silent}
