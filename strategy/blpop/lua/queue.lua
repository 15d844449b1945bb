-- The queue of the processes that wait for a lock. It follows counts.lua.
--
-- queue: a sorted set of inboxes by when they joined (server clock, µs): a place
--        that survives however often its process blocks anew.
-- seen:  a hash with the time each was last heard of, and of the hand-overs:
--        "open" when the present run of them began, "count" how many they were,
--        "until" the end of an opening, "granted" to whom the last one went, "at" when,
--        until it is taken, and "since": whoever is alive was heard of since then.
-- An inbox is the list on which a process blocks; it is its name in the queue.
--
-- The next process is *granted* the free lock: the lock key becomes a hash with the
-- one field "grant:<inbox>" for a while, so that no other barges in, and the key's
-- name is pushed to the inbox. The grant decides, the pushed name is a hint: an
-- attempt of the granted process is let in with or without it.
--
-- Why no wake-up is lost for long: every waiting process makes an attempt about
-- once a second whatever is pushed to it, and an attempt that finds the lock free
-- with another process first in the queue grants it to that one. A process that
-- died with a grant costs the time the grant lasts; one that is late for it takes
-- the lock if no other was granted it since. A process that died in the queue is
-- dropped when it was not heard of for twice as long as it takes to make another
-- attempt. It is passed over, and keeps its place, when it was not heard of while a
-- grant lasted that was not taken: the others were, so any number of processes that die
-- together cost one grant. Why nothing is left: the queue and seen expire five seconds
-- after the last process was heard of, an inbox five seconds after the last push.

local STALE = 2000000 -- µs
local FRESH = 1100000 -- µs
local GRANT = 1000 -- ms
local GRANT_IN_DOUBT = 500 -- ms, to one that should have been heard of again
local RECENT = 1000000 -- µs; no longer than a waiter is silent
local REACTION = 100000 -- µs in which waiters react to the end of what a grant follows
local KEEP = 5000 -- ms
local RUN_TIME = 250000 -- µs
local RUN_LENGTH = 4
local OPEN_LEAST = 10000 -- µs
local OPEN_MOST = 100000 -- µs

local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local function integer(n)
  return string.format('%.0f', n)
end

-- Since when all that are alive were heard of: since a recent hand-over that was not taken.
-- The lock is free.
local function heard_since(seen, now)
  local at = tonumber(redis.call('HGET', seen, 'at'))
  if at then
    redis.call('HDEL', seen, 'at')
    redis.call('HSET', seen, 'since', integer(at + REACTION))
  end
  local since = tonumber(redis.call('HGET', seen, 'since'))
  if since and since <= now and now - since < STALE then
    return since
  end
end

-- The first process in the queue that is alive.
local function first_of(queue, seen, now, since)
  local place, first = 0, nil
  while true do
    local inbox = redis.call('ZRANGE', queue, place, place)[1]
    if not inbox then
      return first
    end
    local at = tonumber(redis.call('HGET', seen, inbox))
    if not at or now - at >= STALE then
      redis.call('ZREM', queue, inbox)
      redis.call('HDEL', seen, inbox)
    elseif not since or at <= now and (at >= since or now - at < RECENT) then
      return inbox
    else
      first = first or inbox
      place = place + 1
    end
  end
end

-- Joins the queue, or says "still here".
local function enqueue(queue, seen, inbox, now)
  redis.call('ZADD', queue, 'NX', integer(now), inbox)
  redis.call('HSET', seen, inbox, integer(now))
  redis.call('PEXPIRE', queue, KEEP)
  redis.call('PEXPIRE', seen, KEEP)
end

local function dequeue(queue, seen, inbox)
  redis.call('ZREM', queue, inbox)
  redis.call('HDEL', seen, inbox)
end

local function was_granted(seen, inbox)
  return redis.call('HGET', seen, 'granted') == inbox
end

-- The rest of an opening, in µs. A clock that went back does not make it longer.
local function opening(seen, now)
  local remaining = (tonumber(redis.call('HGET', seen, 'until')) or 0) - now
  if remaining > OPEN_MOST then
    return 0
  end
  return remaining
end

local function push(inbox, lock)
  redis.call('RPUSH', inbox, lock)
  redis.call('PEXPIRE', inbox, KEEP)
end

local function is_granted(lock, inbox)
  return redis.call('HEXISTS', lock, 'grant:' .. inbox) == 1
end

-- Grants the lock, which is free, to inbox; returns for how many ms.
local function grant(lock, queue, seen, inbox, now, since)
  local lasts = GRANT
  local at = tonumber(redis.call('HGET', seen, inbox)) or 0
  if now - at > FRESH or since and at < since then
    lasts = GRANT_IN_DOUBT
  end
  dequeue(queue, seen, inbox)
  redis.call('HSET', seen, 'granted', inbox, 'at', integer(now))
  redis.call('PEXPIRE', seen, KEEP)
  redis.call('HSET', lock, 'grant:' .. inbox, '1')
  redis.call('PEXPIRE', lock, lasts)
  push(inbox, lock)
  return lasts
end

-- Passes a lock on that is free now. Hand-overs would keep it from waiters
-- of other strategies and of Redisson for ever; so a run of them ends with an
-- opening: the lock stays free for half of an average hold (10 to 100 ms, which
-- is how often a poller looks), subscribers are told, and the queue waits.
local function pass_on(lock, queue, seen, channel, publish)
  local inbox, now, since
  if redis.call('EXISTS', queue) == 1 then
    now = now_us()
    since = heard_since(seen, now)
    inbox = first_of(queue, seen, now, since)
  end
  if not inbox then
    redis.call('DEL', seen) -- the run is over
    -- A user who may not publish must be able to unlock nevertheless.
    redis.pcall(publish, channel, '0')
    return
  end
  local began = tonumber(redis.call('HGET', seen, 'open'))
  if began and began > now then
    began = nil -- the clock went back
  end
  local count = tonumber(redis.call('HGET', seen, 'count')) or 0
  if began and count >= RUN_LENGTH and now - began >= RUN_TIME then
    local window = math.min(math.max((now - began) / count / 2, OPEN_LEAST), OPEN_MOST)
    redis.call('HSET', seen, 'open', integer(now), 'count', '0', 'until', integer(now + window), 'since', integer(now))
    redis.call('PEXPIRE', seen, KEEP)
    -- They come, keep their places, and wait for the end of the opening: two, as the
    -- first may be dead.
    for _, next in ipairs(redis.call('ZRANGE', queue, 0, 1)) do
      push(next, lock)
    end
    redis.pcall(publish, channel, '0')
    return
  end
  if not began then
    redis.call('HSET', seen, 'open', integer(now))
  end
  redis.call('HINCRBY', seen, 'count', 1)
  grant(lock, queue, seen, inbox, now, since)
end

-- Whether the hash at a lock key is ours, so that its end is pushed to the queue:
-- a grant, or a hold whose kind is blpop.
local function is_ours(lock)
  if string.find(redis.call('HGET', lock, '') or '', '^blpop ') then
    return true
  end
  return redis.call('HLEN', lock) == 1 and string.find(redis.call('HGETALL', lock)[1], '^grant:') ~= nil
end
