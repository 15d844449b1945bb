-- The queue of the processes that wait for a lock.
--
-- queue:   a sorted set of inboxes by ticket, a count: no clock orders them.
-- waiters: a hash with what each said last: "claim ttl heard blocks retention tokens
--          owner", heard being when (ms, server clock) and blocks 1 if it blocks on its
--          inbox; and "ticket", the last one; "granted", when a release last handed the
--          lock over; and of openings "run", since when the lock is handed over without
--          one, "opened", when the last began, "until", when it ends, and "asked".
-- An inbox is the list on which a process blocks; it is its name in the queue.
--
-- A release hands the lock over: it writes the claim of the first that is alive into
-- the lock, for a short time, and pushes the claim and its tokens to the inbox. Popping
-- them is the grant; no other claim was let in, and the lock lasts until the process has
-- renewed it. A push that is lost, or that finds the process in the middle of another
-- attempt, changes nothing: an attempt names the claims of those before it that were
-- refused, and is granted the lock if one of them was. Each process makes an attempt
-- about once a second, so a lock that nobody took costs a short grant, after which
-- whoever asks gets it, and a process that is silent for as long is dead. Any number that
-- die together so cost one short grant.
--
-- queue and waiters expire five seconds after the last process was heard of, an inbox
-- five seconds after the last push; only what is popped is pushed to.

local GRANT = 2000 -- ms; also how long a process that waits may be silent
local LATE = 1500 -- ms after the end of a grant in which every process asks
local KEEP = 5000 -- ms
local RUN = 250 -- ms of hand-overs before an opening for others who wait
local SELDOM = 5000 -- ms before one for those who cannot be known of
local OPEN = 100 -- ms; it ends when the lock is taken
local OPEN_SELDOM = 20 -- ms

local function push(inbox, message)
  redis.pcall('RPUSH', inbox, message) -- the process looks by itself, too
  redis.pcall('PEXPIRE', inbox, KEEP)
end

-- What a process said last.
local function said(waiters, inbox)
  local words = redis.call('HGET', waiters, inbox)
  if words then
    local w = {inbox = inbox}
    w.claim, w.ttl, w.heard, w.blocks, w.retention, w.tokens, w.owner =
      string.match(words, '^(%S+) (%d+) (%d+) (%d) (%d+) (%d+) (.*)$')
    return w
  end
end

-- Takes the first process that is alive off the queue.
local function pop(queue, waiters, now)
  while true do
    local inbox = redis.call('ZPOPMIN', queue)[1]
    local w = inbox and said(waiters, inbox)
    if inbox then
      redis.call('HDEL', waiters, inbox)
    end
    if not inbox or w and now - w.heard < GRANT then
      return w
    end
  end
end

local function leave(queue, waiters, inbox)
  redis.call('ZREM', queue, inbox)
  redis.call('HDEL', waiters, inbox)
end

-- Grants the lock, which is free, to w; returns for how many ms.
local function grant(lock, fence, waiters, w, now)
  local ttl = math.min(w.ttl, GRANT)
  local token = issue(fence, w.retention, w.tokens)
  take(lock, 'blpop', w.claim, w.owner, ttl, token)
  redis.call('HSET', waiters, 'granted', now)
  if w.blocks == '1' then
    push(w.inbox, string.format('%s %.0f %s', w.claim, token, w.tokens))
  end
  return ttl
end

-- Reports whether others than the queue are to have a chance now: those of other
-- strategies that wait, who left a mark or subscribed to the channel; and now and then
-- those who cannot be known of.
local function opens(queue, waiters, channel, publish, asked, now)
  local state = redis.call('HMGET', waiters, 'run', 'opened', 'asked')
  local run, opened = tonumber(state[1]) or now, tonumber(state[2]) or now
  if not state[1] or run > now or opened > now then -- the first hand-over, or the clock went back
    redis.call('HSET', waiters, 'run', now, 'opened', now)
    return false
  elseif now - run < RUN then
    if asked and not state[3] then
      redis.call('HSET', waiters, 'asked', '1')
    end
    return false
  end
  local count = publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
  local known = asked or state[3] or (tonumber(redis.pcall('PUBSUB', count, channel)[2]) or 0) > 0
  if not known and now - opened < SELDOM then
    redis.call('HSET', waiters, 'run', now)
    return false
  end
  local ends = now + (known and OPEN or OPEN_SELDOM)
  redis.call('HSET', waiters, 'run', ends, 'opened', now, 'until', ends)
  redis.call('HDEL', waiters, 'asked', 'granted')
  -- They come, keep their places, and wait for the end of the opening: two, as the
  -- first may be dead.
  for _, inbox in ipairs(redis.call('ZRANGE', queue, 0, 1)) do
    local w = said(waiters, inbox)
    if w and w.blocks == '1' then
      push(inbox, w.claim)
    end
  end
  return true
end
