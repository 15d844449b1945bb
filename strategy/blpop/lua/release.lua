local lock, fence, queue = unpack(KEYS)
local claim, owner, channel, publish, inbox = unpack(ARGV)
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

-- claim.lua

local alone, more = is_alone(lock, claim)
alone = alone and owner == ''
if alone and redis.call('EXISTS', queue) == 0 then
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
  local place = not total and inbox and said(queue, inbox)
  if place and place.claim == claim then
    leave_queue(queue, inbox)
  end
  if total ~= 0 then
    return total and 1 or 0
  end
end

redis.call('DEL', lock)
local now_us = clock()
local now = math.floor(now_us / 1000)
local w = first_of(queue, now)
if not w then
  redis.call('DEL', queue)
elseif not begin_opening(fence, queue, channel, publish, more and string.find(more, ' 1$'), now)
    and pcall(grant, lock, fence, queue, w, now_us) then
  return 1
end
redis.pcall(publish, channel, '0')
return 1
