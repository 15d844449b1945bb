-- A signal goes to the Locker of a claim within the round trip of the command that is the reason for it. It may be lost, so a
-- server or user that may not publish refuses nothing else. On a cluster the channels of a Locker are another
-- slot's: the caller sends it.
-- cluster.lua

-- Reports whether the signal was sent to the Locker of claim, if it is one.
local function signal(kind, lock, claim)
  if CLUSTER or not string.find(claim .. '?', '^%x+%-%x+%-%x+%-%x+%-%x+:%d+%?') then
    return false
  end
  local channel = 'locker:claims:{' .. string.sub(claim, 1, 36) .. '}'
  return type(redis.pcall('PUBLISH', channel, kind .. ' ' .. claim .. ' ' .. lock)) == 'number'
end
