-- The body of acquirepermits.lua. Its head says how those that wait come in turn: by WOKEN, line_before,
-- wait_in_line, leave_line and is_line.

weight, limit, waited = tonumber(weight), tonumber(limit), tonumber(waited or '') or -1
local fields = fields_of(lock, '', '>', claim)
if not fields then
  local kind = redis.call('TYPE', lock).ok
  if kind == 'string' then
    told(lock, redis.call('GET', lock))
    return {0, redis.call('PTTL', lock), 1, 0, 0, 0}
  end
  return {-1, kind}
end
local was, out = head_of(fields[1])
if not out then
  if redis.call('EXISTS', lock) == 1 then
    ask(lock)
    told(lock, holder_of(lock))
    return {0, redis.call('PTTL', lock), WOKEN and 0 or 1, 0, 0, 0}
  end
  if redis.call('EXISTS', permits) == 1 then -- of a key that was deleted
    redis.call('DEL', permits) -- not in vain: behind any write a server that is out of memory refuses none
  end
  was, out = limit, 0
end
local other = was ~= limit and was or 0
local now_us = clock()
local now = math.floor(now_us / 1000)

if fields[3] then
  local ended = tonumber(redis.call('ZSCORE', permits, claim)) or 0
  if ended < now + ttl then
    redis.call('ZADD', permits, now + ttl, claim)
    last_for(lock, permits, ttl)
  end
  local token = string.match(fields[3], '^%d+ (%d+)')
  return {1, tonumber(token), 1, is_line() and 0 or math.max(limit - out, 0), other}
end

local bidder, ahead, since, left = bid_of(fields[2], now)
local own = bidder and is_own(bidder, claim)
if not bidder or own or since > now - math.max(waited, 0) then
  ahead = 0 -- it has not waited longer
end
ahead = line_before(bidder, ahead, now_us)

if out + weight + ahead > limit then
  if not is_whole(lock, permits, fields[2]) then
    heal(lock, permits, now)
  end
  local swept = sweep(lock, permits, now, out, limit - weight - ahead)
  if swept ~= out or other > 0 then
    put_head(lock, limit, swept)
  end
  out = swept
end
if out + weight + ahead > limit then
  local bids = waited >= 0 and wait_in_line(ahead, now)
  local first = redis.call('ZRANGE', permits, 0, 0, 'WITHSCORES')[2]
  local remaining = first and math.max(first - now, 0) or -1
  if ahead > 0 and out + weight <= limit then -- it waits for nothing but those before it
    left = left or BID
    remaining = first and math.min(remaining, left) or left
  end
  return {0, remaining, 0, math.max(limit - out - ahead, 0), other, bids and 1 or 0}
end

local token, n = issue(fence, retention, tokens, now_us)
redis.call('ZADD', permits, now + ttl, claim)
out = out + weight
-- The owner may have NUL bytes, at which %s ends.
local value = string.format('%d %.0f', weight, token) .. (owner == '' and '' or ' ' .. owner)
local taken, refusal = pcall(put_head, lock, limit, out, claim, value)
if not taken then -- a user who may not do that leaves no set behind for ever
  redis.call('ZREM', permits, claim)
  error(refusal)
end
if own then
  redis.call('HDEL', lock, '>')
end
last_for(lock, permits, ttl)
leave_line()
local reply = {1, token, n}
reply[#reply + 1] = is_line() and 0 or limit - out
reply[#reply + 1] = other
return reply
