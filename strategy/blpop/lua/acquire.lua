local lock, fence, queue, waiters = unpack(KEYS)
local claim, owner, ttl, retention, tokens, inbox, blocks, refused = unpack(ARGV)
-- owner: '' unless named. Only of a process that waits: inbox; blocks, 1 if it blocks on
-- it else 0; refused, the claims of its attempts before this one that were refused and
-- may have been granted the lock since, separated by spaces.
-- Reply: {1, first token, how many} granted; {0, ms remaining or -1, 1 if the holder's
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

local function granted()
  local token = issue(fence, retention, tokens)
  take(lock, 'blpop', claim, owner, ttl, token)
  return {1, token, tonumber(tokens)}
end

if redis.call('EXISTS', lock, queue) == 0 then
  return granted()
end

local function wait(now)
  if inbox then
    redis.call('HSET', waiters, inbox, table.concat({claim, ttl, now, blocks, retention, tokens, owner}, ' '))
    redis.call('ZADD', queue, 'NX', redis.call('HINCRBY', waiters, 'ticket', 1), inbox)
    redis.call('PEXPIRE', queue, KEEP)
    redis.call('PEXPIRE', waiters, KEEP)
  end
end

local more = redis.pcall('HGET', lock, '')
if type(more) == 'table' then -- an error: no hash
  local kind = redis.call('TYPE', lock).ok
  if kind ~= 'string' then
    return {-1, kind}
  end
  wait(now_ms())
  return {0, redis.call('PTTL', lock), 1}
end

for before in string.gmatch(refused or '', '%S+') do
  if redis.call('HEXISTS', lock, before) == 1 then
    change(lock, before, is_alone(lock, before) and '' or holder_of(lock), {count = 0})
    redis.call('HDEL', waiters, 'granted') -- it was heard of
    if redis.call('EXISTS', lock) == 0 then
      return granted()
    end
  end
end

if redis.call('EXISTS', lock) == 0 then
  -- Free with a queue: an opening, or the holder vanished. Was it handed over, it was not
  -- taken.
  local now, state = now_ms(), redis.call('HMGET', waiters, 'granted', 'until')
  local since, left = now - (tonumber(state[1]) or 0), (tonumber(state[2]) or 0) - now
  if since < 0 or since >= GRANT + LATE then
    wait(now)
    if left > 0 and left <= OPEN then
      return {0, left, 0}
    end
    local w = pop(queue, waiters, now)
    if w and w.inbox ~= inbox then
      return {0, grant(lock, fence, waiters, w, now), 0}
    end
  end
  if inbox then
    leave(queue, waiters, inbox)
  end
  redis.call('HDEL', waiters, 'granted')
  return granted()
end

local token, n = join(lock, fence, claim, owner, ttl, retention, tokens)
if token then
  if inbox then
    leave(queue, waiters, inbox)
  end
  return {1, token, n}
end
wait(now_ms())
return {0, redis.call('PTTL', lock), more and string.find(more, '^blpop ') and 0 or 1, holder_of(lock)}
