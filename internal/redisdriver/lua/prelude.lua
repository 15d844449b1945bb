-- What the scripts of all strategies share; each gets what it uses of it.
--
-- A fencing token is the server's clock in microseconds, or one more than the last
-- token if that is greater. So tokens grow while the clock is wrong, and they grow
-- when the fencing key is gone or, after a failover, is that of a replica which had
-- not heard of the last grants: a counter alone would give their tokens out again.
-- The key is kept for `retention` ms from its first use. A retention of '0' means no
-- fencing.
--
-- A token of a single server is issued before the lock is written: if that fails (wrong
-- type, out of memory), nothing has happened yet.

local function issue_token(fence, retention)
  if retention == '0' then
    return 0
  end
  local token = redis.call('INCR', fence)
  local now = redis.call('TIME')
  local behind = now[1] * 1000000 + now[2] - token
  if behind > 0 then
    -- Not tostring: that rounds to 14 digits.
    redis.call('INCRBY', fence, string.format('%.0f', behind))
    if token == 1 then
      redis.call('PEXPIRE', fence, retention)
    end
    token = token + behind
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
