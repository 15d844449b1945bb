local lock, fence, queue, waiters = unpack(KEYS)
local claim, owner, channel, publish, inbox = unpack(ARGV)
-- owner: '' unless named; inbox: of a process that gives an attempt up, else nil
-- Reply: 1 given back, 0 the claim does not hold the key
--
-- Sent twice or late: the second run finds nothing of this claim, neither in the lock
-- nor in the queue, where the process may wait with a later claim by now. Only the run
-- that frees the key hands it on, in the same step. A claim that is given up while a
-- release grants it holds the lock then, or does so before: either way one of the two
-- runs sees it. Reply lost: it is sent again; and what it granted is the next process's.

local alone, more = is_alone(lock, claim)
if not (owner == '' and alone) then
  more = redis.pcall('HGET', lock, '')
  local total = change(lock, claim, owner, {count = 0})
  if not total and inbox then
    local w = said(waiters, inbox)
    if w and w.claim == claim then
      leave(queue, waiters, inbox)
    end
  end
  if total ~= 0 then
    return total and 1 or 0
  end
end

if redis.call('EXISTS', queue) == 1 then
  redis.call('DEL', lock)
  local now, asked = now_ms(), more and string.find(more, ' 1$')
  if not opens(queue, waiters, channel, publish, asked, now) then
    local w = pop(queue, waiters, now)
    if w and pcall(grant, lock, fence, waiters, w, now) then
      return 1
    end
  end
else
  redis.call('DEL', lock, waiters)
end
-- A user who may not publish must be able to unlock nevertheless.
redis.pcall(publish, channel, '0')
return 1
