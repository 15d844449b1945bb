-- Fencing tokens, for all strategies on a single server.
--
-- A token is the server's clock in microseconds, or one more than the last token if
-- that is greater. So tokens grow while the clock is wrong, and they grow when the
-- counter is gone or, after a failover, is that of a replica which had not heard of
-- the last grants: a counter alone would give their tokens out again. The counter is
-- the last token given. It is made with its expiry in one command, so that nothing
-- leaves it without one; one that is ahead of the clock is kept until the clock has
-- caught up. A retention of '0' means no fencing.
--
-- The counter outlives the lock, or a clock that is set back would lead to a smaller
-- token. retention is the TTL of the lock and, beyond that, what a release is to leave:
-- the longer of two TTLs and 10 minutes. The first grant in a period of the clock
-- writes the counter with an expiry of retention and a period, and the others in that
-- period leave the expiry alone, which costs no command. So retention is left at each
-- grant; where the grant before was for a shorter TTL, 10 minutes are, which is enough for
-- a TTL of up to 5: a longer one writes the expiry each time. Renewals see to what comes after
-- (keep.lua).
--
-- Tokens are issued before the lock is written: if that fails (wrong type, out of
-- memory, no permission), nothing has happened yet.

-- The server's clock, in microseconds.
local function clock()
  local now = redis.call('TIME')
  return now[1] * 1000000 + now[2]
end

local PERIOD = 60000 -- ms
local BRIEF = 900000 -- ms, the retention for a TTL of 5 minutes

-- Reserves `tokens` consecutive tokens; returns the first. now is the clock, if known.
local function issue(fence, retention, tokens, now)
  if retention == '0' then
    return 0
  end
  local last = tonumber(redis.call('GET', fence)) or 0
  now = now or clock()
  local ends = last - last % (PERIOD * 1000) + PERIOD * 1000 -- of the period that last is in
  if last < now and now + tokens < ends and tonumber(retention) <= BRIEF then
    redis.call('INCRBY', fence, now + tokens - 1 - last)
    return now
  end
  local first = math.max(now, last + 1)
  redis.call('SET', fence, first + tokens - 1, 'PX', retention + PERIOD + math.ceil((first - now) / 1000))
  return first
end
