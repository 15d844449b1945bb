local lock, fence = unpack(KEYS)
local claim, ttl, retention, tokens, waited, permits = unpack(ARGV) -- waited: so far, in ms
tokens = tokens or 1
-- Reply: {1, first token} granted; {0, ms remaining or -1, 1} held by
--        another; {-1, type} not a lock
--
-- Sent twice: a claim that holds the key is granted again with the same tokens (no
-- grant can have come between), so the second run changes only the TTL, and only
-- upwards. Reply lost: the claim is released, or ends with its TTL. A run that
-- arrives after that release takes the key for a claim that is not used any more:
-- whoever sent it repeats the release.
--
-- Releases of this strategy give no wake-up: waiters poll. The holder's owner is not
-- told: the key has the claim id only.

-- fence.lua

local remaining = redis.call('PTTL', lock)
if remaining == -2 then
  local token = issue(fence, retention, tokens)
  redis.call('SET', lock, claim, 'PX', ttl)
  return {1, token}
end

-- issued.lua
-- shared.lua
-- permits.lua

local kind = redis.call('TYPE', lock).ok
if kind == 'string' then
  if redis.call('GET', lock) == claim then
    extend(lock, ttl)
    return {1, issued(fence, retention, tokens)}
  end
elseif kind == 'hash' then
  if lock_instead(lock, permits, claim, waited) then
    local token = issue(fence, retention, tokens)
    redis.call('SET', lock, claim, 'PX', ttl)
    return {1, token}
  end
  ask(lock)
else
  return {-1, kind}
end
return {0, remaining, 1}
