local lock, fence, queue, seen = unpack(KEYS)
local claim, owner, ttl, retention, tokens, inbox, waits = unpack(ARGV)
-- Reply: {1, first token, how many} granted; {0, ms remaining or -1, 1 if the holder's release gives
--        no wake-up else 0, its owner if known} held by another, or kept for one that
--        waits; {-1, type} not a lock
--
-- Sent twice: the second run finds the claim's own count and leaves it, answers
-- with the same token, and moves the TTL only upwards. If it was refused, the
-- second run finds its place in the queue and keeps it.

waits = waits == '1'
local kind = redis.call('TYPE', lock).ok
local granted = false

if kind == 'hash' then
  if is_granted(lock, inbox) then
    redis.call('DEL', lock)
    kind, granted = 'none', true
  else
    local token, n = join(lock, fence, claim, owner, ttl, retention, tokens)
    if token then
      return {1, token, n}
    end
  end
elseif kind ~= 'none' and kind ~= 'string' then
  return {-1, kind}
end

if kind == 'none' then
  if not granted and redis.call('EXISTS', queue) == 1 and not was_granted(seen, inbox) then
    -- Free with a queue: an opening, or a holder that vanished.
    local now = now_us()
    if waits then
      enqueue(queue, seen, inbox, now) -- it was heard of
    end
    local remaining = opening(seen, now)
    local since = heard_since(seen, now)
    local first = first_of(queue, seen, now, since)
    if first and remaining > 0 then
      return {0, math.ceil(remaining / 1000), 0}
    elseif first and first ~= inbox then
      return {0, grant(lock, queue, seen, first, now, since), 0}
    end
  end
  local token = issue(fence, retention, tokens)
  take(lock, 'blpop', claim, owner, ttl, token)
  dequeue(queue, seen, inbox)
  redis.call('HDEL', seen, 'granted', 'at')
  return {1, token, tonumber(tokens)}
end

if waits then
  enqueue(queue, seen, inbox, now_us())
end
if kind == 'string' then
  return {0, redis.call('PTTL', lock), 1}
end
return {0, redis.call('PTTL', lock), is_ours(lock) and 0 or 1, holder_of(lock)}
