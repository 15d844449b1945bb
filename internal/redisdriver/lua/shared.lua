-- Functions that scripts of several strategies need where the key is not free.

-- Never less than what is left, and never for ever.
local function extend(key, ttl)
  if redis.call('PTTL', key) < tonumber(ttl) then
    redis.call('PEXPIRE', key, ttl)
  end
end

-- Tells a holder whose release hands the lock to processes that queue for it (blpop) that
-- others wait, too; claim.lua has the field.
local function ask(lock)
  local more = redis.call('HGET', lock, '')
  if more and string.find(more, '^blpop .* 0$') then
    redis.call('HSET', lock, '', string.sub(more, 1, -2) .. '1')
  end
end
