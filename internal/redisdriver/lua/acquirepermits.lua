local lock, permits, fence = unpack(KEYS)
local claim, ttl, retention, tokens, owner, weight, limit, waited = unpack(ARGV)
-- waited: for how long the caller has waited, in ms; nil if it does not wait
-- Reply: {1, first token, how many if not all, free, limit before} granted; {0, ms until a claim ends or -1, 1 if the
--        holder's release gives no wake-up else 0, free, limit before, 1 if permits are kept free for the claim
--        else 0} refused; {-1, type} not a lock. The limit before is 0 if it was the same.
--
-- Sent twice: the second run finds the claim, and answers with its token; its end moves only
-- upwards. Reply lost: the claim is released, or ends with its TTL. A run that arrives after that release
-- takes permits for a claim that is not used any more: whoever sent it repeats the release. A claim that
-- has ended and was not swept is granted anew: nobody was granted its permits.

-- fence.lua
-- shared.lua
-- permits.lua
-- holder.lua
-- tell.lua

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
    return {0, redis.call('PTTL', lock), 0, 0, 0, 0}
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
  return {1, tonumber(token), 1, math.max(limit - out, 0), other}
end

local bidder, ahead, since, left = bid_of(fields[2], now)
local own = bidder and is_own(bidder, claim)
if not bidder or own or since > now - math.max(waited, 0) then
  ahead = 0 -- it has not waited longer
end

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
  local bids = ahead == 0 and waited >= 0 and (weight > 1 or waited >= PATIENCE)
  if bids then
    make_bid(lock, permits, claim, weight, waited, now)
  end
  local first = redis.call('ZRANGE', permits, 0, 0, 'WITHSCORES')[2]
  local remaining = first and math.max(first - now, 0) or -1
  if ahead > 0 and out + weight <= limit then -- it waits for nothing but the bid
    remaining = first and math.min(remaining, left) or left
  end
  return {0, remaining, 0, math.max(limit - out - ahead, 0), other, bids and 1 or 0}
end

local token, n = issue(fence, retention, tokens, now_us)
redis.call('ZADD', permits, now + ttl, claim)
out = out + weight
local taken, refusal = pcall(put_head, lock, limit, out, claim,
  string.format(owner == '' and '%d %.0f' or '%d %.0f %s', weight, token, owner))
if not taken then -- a user who may not do that leaves no set behind for ever
  redis.call('ZREM', permits, claim)
  error(refusal)
end
if own then
  redis.call('HDEL', lock, '>')
end
last_for(lock, permits, ttl)
local reply = {1, token, n}
reply[#reply + 1] = limit - out
reply[#reply + 1] = other
return reply
