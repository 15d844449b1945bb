local lock, fence, queue = unpack(KEYS)
local claim, owner, ttl, retention, tokens, inbox, blocks, refused = unpack(ARGV)
-- owner: '' unless named. Only of a process that waits: inbox; blocks, 1 if it blocks on
-- it else 0; refused, the claims of its attempts before this one that were refused and
-- may have been granted the lock since, separated by spaces.
-- Reply: {1, first token, how many if not all} granted; {0, ms remaining or -1, 1 if the holder's
--        release gives no wake-up else 0, its owner if known} held by another, or kept
--        for one that waits; {-1, type} not a lock
--
-- Sent twice: the second run finds the claim's own count and leaves it, answers with
-- the same tokens, and moves the TTL only upwards. If it was refused, the second run
-- finds its place in the queue and keeps it. Late, after a later attempt of the process:
-- it changes what the process said last; its clean-up finds that and takes it out.
-- Reply lost: the claim is released, and leaves the queue if it is what was said last.
--
-- A claim named in `refused` was refused, so it holds the lock only by a release that
-- came since, and the process has not taken it for granted, nor will it once it was named
-- here: the lock passes to this attempt's claim. If this attempt is lost, so is that
-- grant, unless the next one names it, too; it ends by its short TTL.

-- fence.lua
-- claim.lua

local function granted()
  local token = issue(fence, retention, tokens)
  take(lock, 'blpop', claim, owner, ttl, token)
  return {1, token}
end

if redis.call('EXISTS', lock, queue) == 0 then
  return granted()
end

-- shared.lua
-- holds.lua
-- queue.lua

local now_us = clock()
local now = math.floor(now_us / 1000)

local function wait()
  if inbox then
    local ticket = redis.call('HGET', queue, inbox) or redis.call('HINCRBY', queue, 'last', 1)
    local words = table.concat({inbox, claim, ttl, now, blocks, retention, tokens, owner}, ' ')
    redis.call('HSET', queue, inbox, ticket, ticket, words)
    redis.call('PEXPIRE', queue, KEEP)
  end
end

local kind = redis.call('TYPE', lock).ok
if kind == 'string' then
  wait()
  return {0, redis.call('PTTL', lock), 1}
elseif kind ~= 'hash' and kind ~= 'none' then
  return {-1, kind}
end

for before in string.gmatch(kind == 'hash' and refused or '', '%S+') do
  if redis.call('HGET', lock, before) then
    if is_alone(lock, before, more_of(lock)) then
      redis.call('DEL', lock)
    else
      change(lock, before, holder_of(lock), {count = 0})
    end
    redis.call('HDEL', queue, 'granted') -- it was heard of
    if redis.call('EXISTS', lock) == 0 then
      return granted()
    end
  end
end

if kind == 'none' then
  -- Free with a queue: an opening, or the holder vanished. If it was handed the lock a
  -- short while ago it did not take it, and who asks is alive.
  wait()
  local state = redis.call('HMGET', queue, 'granted', 'until', 'next', 'last', 'token')
  local since, left = now - (state[1] or 0), (state[2] or 0) - now
  if since < 0 or since >= GRANT + LATE then
    if left > 0 and left <= OPEN and state[5] == (redis.call('GET', fence) or '') then
      return {0, math.min(left, LOOK), 0}
    end
    local w = first_of(queue, state[3], state[4], now)
    if w and w.inbox ~= inbox then
      return {0, grant(lock, fence, queue, w, now_us), 0}
    end
  end
  if inbox then
    leave(queue, inbox)
  end
  redis.call('HDEL', queue, 'granted')
  return granted()
end

local token, n = join(lock, fence, claim, owner, ttl, retention, tokens)
if token then
  if inbox then
    leave(queue, inbox)
  end
  return {1, token, n}
end
wait()
local pushes = string.find(redis.call('HGET', lock, '') or '', '^blpop ')
return {0, redis.call('PTTL', lock), pushes and 0 or 1, holder_of(lock)}
