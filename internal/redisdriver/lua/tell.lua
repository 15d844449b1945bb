-- A holder that may not be using the lock has the mark of driver.StickyMark in its claim's id. It is told
-- that it is wanted, by a signal to its Locker, within the round trip of the refusal. A signal may be lost, so a server or
-- user that may not publish refuses nothing else. On a cluster the channels of a Locker are another
-- slot's: the caller tells it.
-- cluster.lua

local function may_be_unused(holder)
  return string.find(holder, '?sticky', 38, true)
end

-- Returns 1 if the holder was told.
local function told(lock, holder)
  if CLUSTER or not may_be_unused(holder) then
    return nil
  end
  redis.pcall('PUBLISH', 'locker:claims:{' .. string.sub(holder, 1, 36) .. '}', 'w ' .. holder .. ' ' .. lock)
  return 1
end

-- Returns the holder, and 1 if it was told, if it may not be using the lock; else nothing.
local function wanted(lock, holder)
  if may_be_unused(holder) then
    return holder, told(lock, holder)
  end
end
