local lock, permits = unpack(KEYS)
local claim, channel, publish = unpack(ARGV)
channel, publish = channel or 'redisson_lock__channel:{' .. lock .. '}', publish or 'PUBLISH'
-- Reply: 1 given back, 0 the claim has none
--
-- Sent twice or late: the second run finds nothing of this claim. The key goes with the last claim, or
-- stays for as long as a bid does: the bidder is next.

-- fence.lua
-- permits.lua

local fields = redis.pcall('HMGET', lock, '', '>', claim)
local limit, out = nil, nil
if not fields.err then
  limit, out = head_of(fields[1])
end
if not out or not fields[3] then
  return 0
end
local now = math.floor(clock() / 1000)
local ended = tonumber(redis.call('ZSCORE', permits, claim)) or math.huge
out = math.max(out - (tonumber(string.match(fields[3], '^%d+')) or 0), 0)
redis.call('HDEL', lock, claim)
redis.call('ZREM', permits, claim)
if out > 0 then
  put_head(lock, limit, out)
  local last = tonumber(redis.call('ZRANGE', permits, -1, -1, 'WITHSCORES')[2])
  if last and last < ended then -- a lock is not kept out for the TTL of a claim that is gone
    redis.call('PEXPIREAT', lock, math.max(last, now + 1))
    redis.call('PEXPIREAT', permits, math.max(last, now + 1))
  end
else
  local bidder, _, _, left = bid_of(fields[2], now)
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
