-- KEYS: the lock, its fencing counter
-- ARGV: claim id, owner, TTL in ms, retention of the counter in ms
-- Reply: {1, token} granted; {0, ms remaining or -1, 0, the holder's owner} held by
--        another; {0, ms remaining or -1, 1} by a holder whose release gives no
--        wake-up: it is no hash lock; {-1, type} not a lock
--
-- Sent twice: the second run finds the claim's own count and leaves it, answers
-- with the same token, and moves the TTL only upwards.

local kind = type_of(KEYS[1])
if kind == 'none' then
  return {1, take(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4])}
end
if kind == 'hash' then
  local token = join(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
  if token then
    return {1, token}
  end
  return {0, redis.call('PTTL', KEYS[1]), 0, holder_of(KEYS[1])}
end
if kind == 'string' then
  return {0, redis.call('PTTL', KEYS[1]), 1}
end
return {-1, kind}
