local lock, fence, queue = unpack(KEYS)
local claim, ttl, retention, tokens, owner, waited, permits, inbox, nth, blocks, earlier = unpack(ARGV)
tokens, owner = tokens or 1, owner or '' -- unless named
-- waited: so far, in ms.
-- Only of a process that waits: inbox; nth, a count of its
-- attempts; blocks, 1 if it blocks on its inbox else 0; earlier, the claims of its attempts
-- before this one that were refused or not answered and may have been granted the lock
-- since, separated by spaces.
-- Reply: {1, first token, how many if not all} granted; {0, ms remaining or -1, 1 if the holder's
--        release gives no wake-up else 0, its owner if known, 1 if it was told} held by another, or kept
--        for one that waits; {-1, type} not a lock
--
-- Sent twice: the second run finds the claim's own count and leaves it, answers with
-- one of the same tokens, and moves the TTL only upwards. If it was refused, the second run
-- finds its place in the queue and keeps it.
-- Late, or sent again after a later attempt: it does nothing where the process waits with
-- the later one, whose place and claim are what a release looks at, and which has named
-- what this one names. Its clean-up finds a place of another claim. Where the process has
-- no place any more, it takes one with a claim that none waits with: its clean-up, which
-- is repeated, takes that out; for a second copy there is none, and a release within two
-- seconds may lose a short grant by it.
-- Reply lost: the claim is released, and leaves the queue if it is what was said last.
-- Late and before the next attempt: that one names it, and takes over place or lock.
--
-- A claim named in `earlier` that holds the lock has it by a release that came since, or
-- by an attempt whose reply was lost. The process has not taken it for granted, nor will
-- it once it was named here: the lock passes to this attempt's claim. If this attempt is
-- lost, the next one names it, too, and whichever of the claims has the lock, it passes on.

-- fence.lua
-- take.lua

local function granted()
  local token, n = issue(fence, retention, tokens)
  take(lock, 'blpop', claim, owner, ttl, token)
  return {1, token, n}
end

if redis.call('EXISTS', lock, queue) == 0 then
  return granted()
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
-- queue.lua

local now_us = clock()
local now = math.floor(now_us / 1000)
local place = inbox and said(queue, inbox)
if place and tonumber(place.nth) > tonumber(nth) then
  return {0, redis.call('PTTL', lock), 0}
end

local function wait()
  if inbox then
    redis.call('HSET', queue, inbox, table.concat({nth, claim, ttl, now, blocks, retention, tokens, owner}, ' '))
    if not place then
      join_queue(queue, inbox)
    end
    expire(queue, KEEP)
  end
end

local function leave()
  if inbox then
    leave_queue(queue, inbox)
  end
end

local kind = redis.call('TYPE', lock).ok
if kind == 'string' then
  -- Its release looks at no queue, and waiters poll: a place would be written each time,
  -- or be one with an earlier claim. They take places when the string has gone.
  leave()
  return {0, redis.call('PTTL', lock), 1, wanted(lock, redis.call('GET', lock))}
elseif kind ~= 'hash' and kind ~= 'none' then
  return {-1, kind}
end
local may = kind == 'hash' and lock_instead(lock, permits, claim, waited)
if may then
  kind = 'none'
elseif kind == 'hash' and may == false then
  leave() -- the release of permits looks at no queue either
  return {0, redis.call('PTTL', lock), 1}
end

for before in string.gmatch(kind == 'hash' and earlier or '', '%S+') do
  if redis.call('HGET', lock, before) then
    if is_alone(lock, before) then
      redis.call('DEL', lock)
    else
      change(lock, before, holder_of(lock), {count = 0})
    end
    redis.call('HDEL', queue, 'granted') -- it was heard of
    if redis.call('EXISTS', lock) == 0 then
      leave()
      return granted()
    end
  end
end

if kind == 'none' then
  -- Free with a queue: an opening, or the holder vanished. If it was handed the lock a
  -- short while ago it did not take it, and who asks is alive.
  wait()
  local state = state_of(queue, 'granted', 'until', 'token')
  local since, left = now - (state.granted or 0), (state['until'] or 0) - now
  if since < 0 or since >= GRANT + LATE then
    if left > 0 and left <= OPEN and state.token == (redis.call('GET', fence) or '') then
      return {0, math.min(left, LOOK), 0}
    end
    local w = first_of(queue, now)
    if w and w.inbox ~= inbox then
      return {0, grant(lock, fence, queue, w, now_us), 0}
    end
  end
  leave()
  redis.call('HDEL', queue, 'granted')
  return granted()
end

local token, n = join(lock, fence, claim, owner, ttl, retention, tokens)
if token then
  leave()
  return {1, token, n}
end
wait()
local pushes = string.find(redis.call('HGET', lock, '') or '', '^blpop ')
local holder = holder_of(lock)
return {0, redis.call('PTTL', lock), pushes and 0 or 1, holder, told(lock, holder)}
