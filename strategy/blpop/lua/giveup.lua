local lock, queue, seen = unpack(KEYS)
local channel, publish, inbox = unpack(ARGV)
-- Reply: 1
--
-- A process that waited for the lock does so no more. What it was granted, or woken
-- for, goes to the next. Sent twice: the second run finds no place and no grant; a
-- lock that is free with a queue is passed on, as any attempt would.

dequeue(queue, seen, inbox)
if was_granted(seen, inbox) then
  redis.call('HDEL', seen, 'granted', 'at')
end
local kind = redis.call('TYPE', lock).ok
if kind == 'hash' and is_granted(lock, inbox) then
  redis.call('DEL', lock)
  pass_on(lock, queue, seen, channel, publish) -- to those who listen, if nobody queues
elseif redis.call('EXISTS', queue) == 0 then
  if redis.call('HEXISTS', seen, 'granted') == 0 then
    redis.call('DEL', seen)
  end
elseif kind == 'none' then
  pass_on(lock, queue, seen, channel, publish)
end
return 1
