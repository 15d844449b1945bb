local lock = unpack(KEYS)
local claim, fence, queue, owner, channel, publish, inbox = unpack(ARGV)
owner = owner or '' -- unless named
channel, publish = channel or 'redisson_lock__channel:{' .. lock .. '}', publish or 'PUBLISH'
-- inbox: of a process that gives an attempt up, else nil
-- Reply: 1 given back, 0 the claim does not hold the key
--
-- Sent twice or late: the second run finds nothing of this claim, neither in the lock
-- nor in the queue, where the process may wait with a later claim by now. Only the run
-- that frees the key hands it on, in the same step. A claim that is given up while a
-- release grants it holds the lock then, or does so before: either way one of the two
-- runs sees it. Reply lost: it is sent again; and what it granted is the next process's.
--
-- Counter and queue are arguments and no keys of the script. While a slot moves, its nodes
-- refuse a script with a key that is there and one that is not, and mostly there is no queue;
-- so the lock alone says which node frees it. That node hands the lock on only if counter and
-- queue are there, too: EXISTS of both fails otherwise, as the script's next commands would, or
-- as what they make would be in the way of what is to come. Without that
-- those who wait look by themselves. A process that gives up is to leave the queue: its
-- clean-up fails until that can be seen, and is repeated.

-- claim.lua

local alone, more = is_alone(lock, claim)
alone = alone and owner == ''
local waiting = redis.pcall('EXISTS', queue) -- an error is a table
if alone and waiting ~= 1 then
  redis.call('DEL', lock)
  redis.pcall(publish, channel, '0') -- a user who may not must be able to unlock
  return 1
end

-- fence.lua
-- take.lua
-- holds.lua
-- queue.lua

if not alone then
  local total = change(lock, claim, owner, {count = 0})
  local place = not total and inbox and waiting ~= 0 and said(queue, inbox)
  if place and place.claim == claim then
    leave_queue(queue, inbox)
  end
  if total ~= 0 then
    return total and 1 or 0
  end
end

-- Grants the lock to the first that waits, unless it stays free for others, and reports
-- whether it has.
local function hand_on()
  redis.call('EXISTS', fence, queue)
  local now_us = clock()
  local now = math.floor(now_us / 1000)
  local w = first_of(queue, now)
  if not w then
    redis.call('DEL', queue)
    return false
  elseif begin_opening(fence, queue, channel, publish, more and string.find(more, ' 1$'), now) then
    return false
  end
  grant(lock, fence, queue, w, now_us)
  return true
end

redis.call('DEL', lock)
local done, handed = pcall(hand_on)
if not (done and handed) then
  redis.pcall(publish, channel, '0')
end
return 1
