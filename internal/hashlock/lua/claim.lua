-- The hash at a lock key says who holds it. Its fields:
--
--   the owner  the total of its holds, as Redisson writes it
--   a claim    "count expiry token" of one process's hold, where the owner was named.
--              A claim whose owner was not named is its own owner, and has no other
--              field until a process joins it by its name.
--   ''         "kind token expiry asked", if need be; no owner has that name. kind says
--              how the release wakes waiters, blpop or hash. token is the hold's and
--              expiry that of the claim that is the owner: '-' the counter's, and the
--              key's; 0 where an owner is named like a claim of ours, which may have
--              been another grant's and has no hold in this one. asked is 1 when a
--              waiter that the release would not wake was refused.
--
-- Each claim has an expiry of its own (ms, server clock), which only its own renewals
-- move; the key's is the last of them. So a process that died is forgotten at its TTL
-- whatever its co-owners do. Counts and expiries are set, never incremented: setting
-- one twice changes nothing.

-- The field '', false without.
local function more_of(lock)
  local more = redis.pcall('HGET', lock, '')
  return type(more) == 'string' and more -- or it is no hash
end

-- Reports whether claim, whose owner was not named, holds the hash alone, given the field
-- ''. Where it has the field of its name only as another's owner, that has an expiry.
local function is_alone(lock, claim, more)
  return not (more and not string.find(more, '^%a+ %S+ %- ')) and tonumber(redis.pcall('HGET', lock, claim)) ~= nil
end

-- Reports whether an owner is, or is named like, a claim of ours; Java's are of version 4.
local function is_ours(owner)
  return string.find(owner, '^%x+%-%x+%-8')
end

-- Makes a hold where nothing is. kind is nil if the hash can do without.
local function take(lock, kind, claim, owner, ttl, token)
  if owner ~= '' then
    redis.call('HSET', lock, owner, '1', claim, string.format('1 %.0f %.0f', math.floor(clock() / 1000) + ttl, token))
    if is_ours(owner) then
      redis.call('HSET', lock, '', (kind or 'hash') .. ' - 0 0')
    elseif kind then
      redis.call('HSET', lock, '', kind .. ' - - 0')
    end
  elseif token == 0 then
    redis.call('HSET', lock, claim, '1', '', (kind or 'hash') .. ' 0 - 0')
  elseif kind then
    redis.call('HSET', lock, claim, '1', '', kind .. ' - - 0')
  else
    redis.call('HSET', lock, claim, '1')
  end
  local expires = redis.pcall('PEXPIRE', lock, ttl)
  if expires ~= 1 then -- a user who may not: no lock stays for ever
    redis.call('DEL', lock)
    error(expires.err)
  end
end
