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

local AHEAD = 32 -- tokens; driver.TokensAhead

-- Reserves up to `tokens` consecutive tokens. Returns the first, and how many they are if that is
-- not all. now is the clock, if known.
--
-- They end at the clock, and begin behind the last one issued: so a block of any length moves the
-- counter no further than a single token does, and the counter never outruns the clock. Without a
-- counter the tokens begin at the clock: those just before it may have been issued before the counter was
-- lost. A replica that is promoted without the last grants has a counter, and repeats tokens only if its
-- clock is less than a block, in microseconds, ahead of the last token: a failover takes longer.
local function issue(fence, retention, tokens, now)
  if retention == '0' then
    return 0
  end
  local last = tonumber(redis.call('GET', fence)) or 0
  now, tokens = now or clock(), tonumber(tokens)
  local first, final = math.max(last + 1, now - tokens + 1), now
  if last == 0 or last >= now then
    first = math.max(last + 1, now)
    final = first + math.min(tokens, AHEAD) - 1
  end
  local ends = last - last % (PERIOD * 1000) + PERIOD * 1000 -- of the period that last is in
  if last < now and now < ends and tonumber(retention) <= BRIEF then
    redis.call('INCRBY', fence, now - last)
  else
    redis.call('SET', fence, final, 'PX', retention + PERIOD + math.ceil((final - now) / 1000))
  end
  local n = final - first + 1
  return first, n < tokens and n or nil
end
