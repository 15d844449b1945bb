local lock, fence = unpack(KEYS)
local claim, ttl, retention, tokens, waited, permits = unpack(ARGV) -- waited: so far, in ms
tokens = tokens or 1
-- Reply: {1, first token, how many if not all} granted; {0, ms remaining or -1, 1, the holder if it may
--        not be using the lock, 1 if it was told} held by another; {-1, type} not a lock
--
-- Sent twice: a claim that holds the key is granted again with one of the same tokens (no
-- grant can have come between), so the second run changes only the TTL, and only
-- upwards. Reply lost: the claim is released, or ends with its TTL. A run that
-- arrives after that release takes the key for a claim that is not used any more:
-- whoever sent it repeats the release.
--
-- Releases of this strategy give no wake-up: waiters poll.

-- fence.lua

local remaining = redis.call('PTTL', lock)
if remaining == -2 then
  local token, n = issue(fence, retention, tokens)
  redis.call('SET', lock, claim, 'PX', ttl)
  return {1, token, n}
end

-- issued.lua
-- shared.lua
-- permits.lua
-- holder.lua
-- tell.lua

local kind, holder = redis.call('TYPE', lock).ok
if kind == 'string' then
  holder = redis.call('GET', lock)
  if holder == claim then
    extend(lock, ttl)
    return {1, issued(fence, retention, tokens)}
  end
elseif kind == 'hash' then
  if lock_instead(lock, permits, claim, waited) then
    local token, n = issue(fence, retention, tokens)
    redis.call('SET', lock, claim, 'PX', ttl)
    return {1, token, n}
  end
  ask(lock)
  holder = holder_of(lock)
else
  return {-1, kind}
end
return {0, remaining, 1, wanted(lock, holder)}
