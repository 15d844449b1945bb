local lock = unpack(KEYS)
local claim, news = unpack(ARGV) -- or what the string is, whoever has set it; the kind of the signal, 'b' by default
-- Reply: 1 freed, 0 the lock is not that claim's
--
-- Sent twice or late: a claim's id is never used again, so a second run finds nothing. A
-- value of another library may be there again by then; the doc of ForceUnlock warns of that.
-- A server that refuses a command fails the script: a refusal does not look like a free key.

-- Where the holder's channel can be reached from here, the script sends the signal. The caller sends it again: a
-- signal that comes twice is one more look at the store.

-- fence.lua
-- signal.lua

-- Reports whether claim has a hold in the hash that has not ended. One beside others has an
-- expiry of its own, which stands in its field or, where the claim is the owner, in the
-- field ''.
local function is_held(lock, claim)
  local value = redis.call('HGET', lock, claim)
  local expiry = value and string.match(value, '^%d+ (%d+) %d+$')
  if value and not expiry then
    expiry = string.match(redis.call('HGET', lock, '') or '', '^%a+ %S+ (%d+) %d$')
  end
  return value and (not expiry or tonumber(expiry) > clock() / 1000)
end

local kind = redis.call('TYPE', lock).ok
if kind == 'string' and redis.call('GET', lock) == claim or kind == 'hash' and is_held(lock, claim) then
  redis.call('DEL', lock)
  signal(news or 'b', lock, claim)
  return 1
end
return 0
