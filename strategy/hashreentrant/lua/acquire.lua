local lock, fence = unpack(KEYS)
local claim, ttl, retention, tokens, owner, waited, permits = unpack(ARGV) -- waited: so far, in ms
tokens, owner = tokens or 1, owner or '' -- unless named
-- Reply: {1, first token, how many if not all} granted; {0, ms remaining or -1, 0, the holder's
--        owner, 1 if it was told} held by another; {0, ms remaining or -1, 1, ...} by a holder whose release
--        gives no wake-up: it is no hash lock; {-1, type} not a lock
--
-- Sent twice: the second run finds the claim's own count and leaves it, answers
-- with one of the same tokens, and moves the TTL only upwards. Reply lost: the claim is
-- released, or ends with its TTL, whatever its co-owners do.

-- fence.lua
-- take.lua

if redis.call('EXISTS', lock) == 0 then
  local token, n = issue(fence, retention, tokens)
  take(lock, nil, claim, owner, ttl, token)
  return {1, token, n}
end

-- issued.lua
-- shared.lua
-- keep.lua
-- claim.lua
-- holds.lua
-- join.lua
-- permits.lua
-- holder.lua
-- tell.lua

local kind = redis.call('TYPE', lock).ok
if kind == 'hash' then
  local may = lock_instead(lock, permits, claim, waited)
  if may then
    local token, n = issue(fence, retention, tokens)
    take(lock, nil, claim, owner, ttl, token)
    return {1, token, n}
  elseif may == false then
    return {0, redis.call('PTTL', lock), 0, ''}
  end
  local token, n = join(lock, fence, claim, owner, ttl, retention, tokens)
  if token then
    return {1, token, n}
  end
  ask(lock)
  local holder = holder_of(lock)
  return {0, redis.call('PTTL', lock), 0, holder, told(lock, holder)}
elseif kind == 'string' then
  return {0, redis.call('PTTL', lock), 1, wanted(lock, redis.call('GET', lock))}
end
return {-1, kind}
