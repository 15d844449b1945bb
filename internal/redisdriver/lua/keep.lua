local SPARE = 60000 -- ms, so that few renewals write

-- Sees to it that the fencing counter of a lock that was renewed, or joined, outlives it:
-- retention is as in fence.lua. It only moves the expiry, and only upwards, so that late and
-- repeated runs do no harm; a counter that is gone was taken away (fence.lua has what
-- that leads to). fence is no key of the script but an argument: while a
-- slot moves, a server refuses a script with a key that is there and one that is not. Its
-- refusal here is ignored, and the next renewal tries again.
local function keep(fence, retention)
  local left = retention ~= '0' and redis.pcall('PTTL', fence)
  if type(left) == 'number' and left >= 0 and left < tonumber(retention) then
    redis.pcall('PEXPIRE', fence, retention + SPARE)
  end
end
