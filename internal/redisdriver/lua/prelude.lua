-- What the scripts of all strategies share; it precedes each of them.
--
-- Fencing tokens are a clock base plus a counter: INCR the fencing key, and only
-- when that shows that it was absent, start it at the server's clock in
-- microseconds, to be kept for `retention` ms. Grants of one key come slower than
-- one a microsecond, so the counter never overtakes the clock, and a fresh start
-- is ahead of every token before it. A retention of '0' means no fencing.
--
-- A token is issued before the lock is written: if that fails (wrong type, out
-- of memory), nothing has happened yet.

local function issue_token(fence, retention)
  if retention == '0' then
    return 0
  end
  local token = redis.call('INCR', fence)
  if token == 1 then
    local now = redis.call('TIME')
    token = now[1] * 1000000 + now[2]
    -- Not tostring: that rounds to 14 digits.
    redis.call('SET', fence, string.format('%.0f', token), 'PX', retention)
  end
  return token
end

-- The token of the grant in force: nobody was granted the key since.
local function current_token(fence, retention)
  if retention == '0' then
    return 0
  end
  return tonumber(redis.call('GET', fence)) or issue_token(fence, retention)
end

local function type_of(key)
  local t = redis.call('TYPE', key)
  return t.ok or t
end

-- Never less than what is left, and never for ever.
local function extend(key, ttl)
  if redis.call('PTTL', key) < tonumber(ttl) then
    redis.call('PEXPIRE', key, ttl)
  end
end
