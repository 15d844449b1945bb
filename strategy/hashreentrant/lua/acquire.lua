-- KEYS: the lock, its fencing counter
-- ARGV: claim id, owner, TTL in ms, retention of the counter in ms
-- Reply: {1, token} granted; {0, ms left or -1, 1 if the holder is no hash lock}
--        held by another; {-1, type} not a lock
--
-- Sent twice: the second run finds the claim's own count and leaves it, answers
-- with the same token, and moves the TTL only upwards.
--
-- An owner that holds by another claim (another process that names the same
-- owner) is let in with the token of the hold it joins.

local kind = type_of(KEYS[1])
if kind == 'none' then
  local token = issue_token(KEYS[2], ARGV[4])
  set_holds(KEYS[1], ARGV[1], ARGV[2], 1, 0)
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {1, token}
end

if kind == 'hash' then
  -- Not every field is an owner: a read-write lock of Redisson's has "mode".
  if tonumber(redis.call('HGET', KEYS[1], ARGV[2])) then
    local token = current_token(KEYS[2], ARGV[4])
    if holds_of(KEYS[1], ARGV[1], ARGV[2]) == 0 then
      set_holds(KEYS[1], ARGV[1], ARGV[2], 1, 0)
    end
    extend(KEYS[1], ARGV[3])
    return {1, token}
  end
  return {0, redis.call('PTTL', KEYS[1]), 0}
end

if kind == 'string' then
  return {0, redis.call('PTTL', KEYS[1]), 1}
end
return {-1, kind}
