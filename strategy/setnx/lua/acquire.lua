-- KEYS: the lock, its fencing counter
-- ARGV: claim id, owner (unused), TTL in ms, retention of the counter in ms
-- Reply: {1, token} granted; {0, ms remaining or -1, 1} held by another; {-1, type}
--        not a lock
--
-- Sent twice: a claim that holds the key is granted again with the same token
-- (no grant can have come between), so the second run changes only the TTL, and
-- only upwards.
--
-- Releases of this strategy give no wake-up: waiters poll. The holder's owner is not
-- told: the key has the claim id only.

local remaining = redis.call('PTTL', KEYS[1])
if remaining == -2 then
  local token = issue_token(KEYS[2], ARGV[4])
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
  return {1, token}
end

local kind = type_of(KEYS[1])
if kind == 'string' then
  if redis.call('GET', KEYS[1]) == ARGV[1] then
    extend(KEYS[1], ARGV[3])
    return {1, current_token(KEYS[2], ARGV[4])}
  end
elseif kind ~= 'hash' then
  return {-1, kind}
end
return {0, remaining, 1}
