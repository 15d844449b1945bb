local lock, permits = unpack(KEYS)
local claim, channel, publish = unpack(ARGV)
channel, publish = channel or 'redisson_lock__channel:{' .. lock .. '}', publish or 'PUBLISH'
-- Reply: 1 given back, 0 the claim has none
--
-- Sent twice or late: the second run finds nothing of this claim. The key goes with the last claim, or
-- stays for as long as a bid does: the bidder is next. The bid of a claim ends with its release: then nobody
-- waits for what was kept free.

-- fence.lua
-- permits.lua

local fields = fields_of(lock, '', '>', claim) or {}
local limit, out = head_of(fields[1])
local now = math.floor(clock() / 1000)
local bidder, _, _, left = bid_of(fields[2], now)
if not out or not fields[3] then
  if out and bidder == claim then
    redis.call('HDEL', lock, '>')
    if out == 0 then
      redis.call('DEL', lock)
    end
    redis.pcall(publish, channel, '0')
  end
  return 0
end
local ended = tonumber(redis.call('ZSCORE', permits, claim)) or math.huge
out = math.max(out - (tonumber(string.match(fields[3], '^%d+')) or 0), 0)
redis.call('ZREM', permits, claim) -- first, as in a sweep
redis.call('HDEL', lock, claim)
if out > 0 then
  put_head(lock, limit, out)
  local last = tonumber(redis.call('ZRANGE', permits, -1, -1, 'WITHSCORES')[2])
  if last and last < ended and is_whole(lock, permits, fields[2]) then -- a lock is not kept out for the TTL of a claim that is gone
    last = math.max(last, now + (left or 1))
    redis.call('PEXPIREAT', lock, last)
    redis.call('PEXPIREAT', permits, last)
  end
else
  if bidder then
    put_head(lock, limit, 0)
    redis.call('PEXPIRE', lock, left)
    redis.call('DEL', permits)
  else
    redis.call('DEL', lock, permits)
  end
end
redis.pcall(publish, channel, '0')
return ended > now and 1 or 0
