-- The queue of the processes that wait for a lock, a hash:
--
--   <inbox>   what a process said last: "nth claim ttl heard blocks retention tokens
--             owner". The inbox is a list; it stands for the process. nth counts the
--             process's attempts, heard is when (ms, server clock), blocks 1 if it blocks
--             on its inbox.
--   ><inbox>  the inbox behind it, and <<inbox> the one before it: '' at the ends, so '>'
--             has the first and '<' the last. No clock orders them.
--   granted   when a release last handed the lock over
--   run       since when it is handed over without an opening; opened, when the last one
--             began; until, when it ends; token, the fencing counter then; asked, 1 if
--             others were refused since
--
-- Joining and leaving are a few commands, however many wait or have waited: nothing is
-- left of those who left. A process that is found dead leaves, so it is found once.
--
-- A release hands the lock over: it writes the claim of the first that is alive into
-- the lock, for a short time, and pushes the claim and its tokens to the inbox. Popping
-- them is the grant; no other claim was let in, and the lock lasts until the process has
-- renewed it. A push that is lost, or that finds the process in the middle of another
-- attempt, changes nothing: an attempt names the claims of those before it that were
-- refused, and is granted the lock if one of them was. Each process makes an attempt
-- about once a second, so a lock that it did not take costs a short grant, after which
-- whoever asks gets it; and a process that is silent for as long is dead. So any number
-- that die together cost one short grant.
--
-- The queue expires KEEP after the last process was heard of, an inbox KEEP after the last
-- push; only what is popped is pushed to.

-- GRANT, in ms, is also how long a process that waits may be silent; KEEP, in ms, is how
-- long the queue and an inbox are kept.
-- limits.lua
local LATE = 1500 -- ms after the end of a grant in which every process asks
local RUN = 250 -- ms of hand-overs before an opening for others who wait
local SELDOM = 2000 -- ms before one for those who cannot be known of
local OPEN = 100 -- ms, for those who poll; a token that is issued ends it
local OPEN_BRIEFLY = 20 -- ms, for waiters that are woken or not known of
local LOOK = 10 -- ms after which the queue looks whether an opening has ended

-- push.lua

-- The fields of the queue that have these names.
local function state_of(queue, ...)
  local values, state = redis.call('HMGET', queue, ...), {}
  for i, name in ipairs({...}) do
    state[name] = values[i]
  end
  return state
end

-- Returns what a process said last; nil if it does not wait.
local function said(queue, inbox)
  local words = redis.call('HGET', queue, inbox)
  if words then
    local w = {inbox = inbox}
    w.nth, w.claim, w.ttl, w.heard, w.blocks, w.retention, w.tokens, w.owner =
      string.match(words, '^(%d+) (%S+) (%d+) (%d+) (%d) (%d+) (%d+) (.*)$')
    return w
  end
end

local function join_queue(queue, inbox)
  local last = redis.call('HGET', queue, '<') or ''
  redis.call('HSET', queue, '>' .. last, inbox, '<' .. inbox, last, '>' .. inbox, '', '<', inbox)
end

-- Takes a process out, if it waits; ... is set in the queue then.
local function leave_queue(queue, inbox, ...)
  local links = redis.call('HMGET', queue, '<' .. inbox, '>' .. inbox)
  local before, behind = links[1], links[2]
  if before then
    redis.call('HDEL', queue, inbox, '<' .. inbox, '>' .. inbox)
    redis.call('HSET', queue, '>' .. before, behind, '<' .. behind, before, ...)
  end
end

-- The first process that is alive, nil if none is. Those before it leave the queue.
local function first_of(queue, now)
  while true do
    local inbox = redis.call('HGET', queue, '>') or ''
    local w = said(queue, inbox)
    if not w or now - w.heard < GRANT then
      return w
    end
    leave_queue(queue, inbox)
  end
end

-- Grants the lock, which is free, to w; returns for how many ms. now is in µs.
local function grant(lock, fence, queue, w, now)
  local ttl = math.min(w.ttl, GRANT)
  local token, n = issue(fence, w.retention, w.tokens, now)
  take(lock, 'blpop', w.claim, w.owner, ttl, token)
  leave_queue(queue, w.inbox, 'granted', math.floor(now / 1000))
  if w.blocks == '1' then
    push(w.inbox, string.format('%s %.0f %s', w.claim, token, n or w.tokens))
  end
  return ttl
end

-- Lets the lock stay free for others than the queue, if it is time for that, and reports
-- whether it is: for those of other strategies that wait, who left a mark or subscribed
-- to the channel; and now and then for those who cannot be known of.
local function begin_opening(fence, queue, channel, publish, asked, now)
  local state = state_of(queue, 'run', 'opened', 'asked')
  local run, opened = tonumber(state.run) or now + 1, tonumber(state.opened) or now
  if run > now or opened > now then -- the first hand-over, an opening ends, or the clock went back
    redis.call('HSET', queue, 'run', now, 'opened', math.min(opened, now))
    return false
  elseif now - run < RUN then
    if asked and not state.asked then
      redis.call('HSET', queue, 'asked', '1')
    end
    return false
  end
  local count = publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
  asked = asked or state.asked
  local known = asked or (tonumber(redis.pcall('PUBSUB', count, channel)[2]) or 0) > 0
  if not known and now - opened < SELDOM then
    redis.call('HSET', queue, 'run', now)
    return false
  end
  redis.call('HSET', queue, 'run', now, 'opened', now, 'until', now + (asked and OPEN or OPEN_BRIEFLY),
    'token', redis.call('GET', fence) or '')
  redis.call('HDEL', queue, 'asked', 'granted')
  -- They come, keep their places, and wait for the end of the opening: two, as the
  -- first may be dead. One that does not block looks by itself.
  local inbox = ''
  for _ = 1, 2 do
    inbox = redis.call('HGET', queue, '>' .. inbox) or ''
    local w = said(queue, inbox)
    if w and w.blocks == '1' then
      push(w.inbox, w.claim)
    end
  end
  return true
end
