-- A key with permits. The hash at the lock key has the fields
--
--   ''         "permits limit out": the limit that was named last, and how many permits are out
--   '>'        "claim count since heard": the bid of the Locker that has waited longest, by the claim
--              of its last attempt (ms, server clock); after BID ms without a word it is none
--   a claim    "count token owner" of one claim; owner only where it was named
--
-- and the sorted set beside it has the claims by their ends (ms, server clock), which only their own
-- renewals move. Both expire with the last claim. What has ended is swept where it is in the way: each
-- claim once, at O(log n). So no command looks at all claims. No value is a mere number, or three of
-- them, and the first word of '' is no kind of claim.lua's: for every strategy that locks here, an
-- older one or Redisson, it is a hash that somebody else holds, and for this one theirs are.

local BID = 2000
local PATIENCE = 1000 -- ms before a request for one permit bids
local PAGE = 100 -- claims

-- The fields of the hash that have these names; nil if the key has another type. A server that refuses a
-- command fails the script: a refusal does not look like a free key.
local function fields_of(lock, ...)
  local fields = redis.pcall('HMGET', lock, ...)
  if not fields.err then
    return fields
  elseif not string.find(fields.err, 'WRONGTYPE') then
    error(fields.err)
  end
end

local function head_of(head)
  local limit, out = string.match(head or '', '^permits (%d+) (%d+)$')
  return tonumber(limit), tonumber(out)
end

local function put_head(lock, limit, out, ...)
  redis.call('HSET', lock, '', string.format('permits %d %d', limit, out), ...)
end

-- Returns which claim the bid is of, for how many, since when, and for how long it is one still; nil if it is none.
local function bid_of(bid, now)
  local claim, count, since, heard = string.match(bid or '', '^(%S+) (%d+) (%d+) (%d+)$')
  local left = claim and heard + BID - now
  if claim and left > 0 and left <= BID then
    return claim, tonumber(count), tonumber(since), left
  end
end

-- The Locker of a claim.
local function locker_of(claim)
  return string.match(claim, '^[^:]+')
end

-- Reports whether two claims are of one Locker.
local function is_own(claim, other)
  return locker_of(claim) == locker_of(other)
end

-- Forgets claims that have ended, until at most `enough` permits are out; returns how many are. A call sweeps
-- a few hundred claims: whoever needs more asks again.
local function sweep(lock, ends, now, out, enough)
  for _ = 1, 3 do
    local gone = out > enough and redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, PAGE) or {}
    if #gone == 0 then
      break
    end
    for _, value in ipairs(redis.call('HMGET', lock, unpack(gone))) do
      out = out - (tonumber(string.match(value or '', '^%d+')) or 0)
    end
    redis.call('HSET', lock, '', redis.call('HGET', lock, '')) -- who may not note what is swept sweeps nothing
    redis.call('ZREM', ends, unpack(gone)) -- before HDEL: claims without an end are healed
    redis.call('HDEL', lock, unpack(gone))
  end
  return math.max(out, 0)
end

-- Reports whether each claim has an end: the set of them may have been lost (evicted, deleted).
-- bid is the field '>'.
local function is_whole(lock, ends, bid)
  return redis.call('ZCARD', ends) + (bid and 2 or 1) >= redis.call('HLEN', lock)
end

-- Gives the claims without an end that of the key.
local function heal(lock, ends, now)
  local last = now + math.max(redis.call('PTTL', lock), 0)
  for _, field in ipairs(redis.call('HKEYS', lock)) do
    if field ~= '' and field ~= '>' then
      redis.call('ZADD', ends, 'NX', last, field)
    end
  end
  redis.call('PEXPIREAT', ends, last)
end

-- Makes both keys last for ttl, and the set as long as the hash, which a bid may keep. A user who may not do
-- that leaves nothing behind for ever.
local function last_for(lock, ends, ttl)
  local left = redis.call('PTTL', lock)
  for _, key in ipairs({lock, ends}) do
    local until_then = key == lock and tonumber(ttl) or math.max(ttl, left)
    if redis.call('PTTL', key) < until_then then
      local expires = redis.pcall('PEXPIRE', key, until_then)
      if type(expires) == 'table' then
        if redis.call('PTTL', key) < 0 then
          redis.call('DEL', lock, ends)
        end
        error(expires.err)
      end
    end
  end
end

-- Notes that the Locker of the claim has waited longest. waited is in ms.
local function make_bid(lock, ends, claim, count, waited, now)
  redis.call('HSET', lock, '>', string.format('%s %d %.0f %.0f', claim, count, now - waited, now))
  last_for(lock, ends, BID)
end

-- Gives back what a claim has; fields are those of the hash: '', '>' and the claim. next is for how long the key stays for
-- whoever is next if no permits are out, in ms; nil if nobody waits. Returns how many are out, and whether the claim had not ended.
local function give_back(lock, ends, fields, claim, now, next)
  local limit, out = head_of(fields[1])
  local ended = tonumber(redis.call('ZSCORE', ends, claim)) or math.huge
  out = math.max(out - (tonumber(string.match(fields[3], '^%d+')) or 0), 0)
  redis.call('ZREM', ends, claim) -- first, as in a sweep
  redis.call('HDEL', lock, claim)
  if out > 0 then
    put_head(lock, limit, out)
    local last = tonumber(redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2])
    if last and last < ended and is_whole(lock, ends, fields[2]) then -- a lock is not kept out for the TTL of a claim that is gone
      last = math.max(last, now + (next or 1))
      redis.call('PEXPIREAT', lock, last)
      redis.call('PEXPIREAT', ends, last)
    end
  elseif next then
    put_head(lock, limit, 0)
    redis.call('PEXPIRE', lock, next)
    redis.call('DEL', ends)
  else
    redis.call('DEL', lock, ends)
  end
  return out, ended > now
end

-- A lock waits at a key with permits as a claim that asks for all of them. Returns true if it
-- may take the key, which is gone then; false if it is refused; nil if the key has no permits. ends is nil for
-- a lock that does not wait: what is out of dead claims alone ends with the key.
local function lock_instead(lock, ends, claim, waited)
  local limit, out = head_of(redis.call('HGET', lock, ''))
  if not out then
    return nil
  end
  local now = math.floor(clock() / 1000)
  waited = tonumber(waited or '') or 0
  if waited > 0 then
    local swept = sweep(lock, ends, now, out, 0)
    if swept ~= out then
      put_head(lock, limit, swept)
      out = swept
    end
  end
  local bidder, _, since = bid_of(redis.call('HGET', lock, '>'), now)
  if bidder and not is_own(bidder, claim) and since <= now - waited then
    return false
  elseif out == 0 then
    redis.call('DEL', lock)
    return true
  elseif waited > 0 then
    make_bid(lock, ends, claim, 1000000000, waited, now)
  end
  return false
end
