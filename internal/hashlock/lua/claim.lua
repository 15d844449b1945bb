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

-- Reports whether claim, whose owner was not named, holds the hash alone; and the field '',
-- false without. Where the claim has the field of its name only as another's owner, that
-- has an expiry.
local function is_alone(lock, claim)
  local more = redis.pcall('HGET', lock, '')
  more = type(more) == 'string' and more -- or it is no hash
  if more and not string.find(more, '^%a+ %S+ %- ') then
    return false, more
  end
  return tonumber(redis.pcall('HGET', lock, claim)) ~= nil, more
end
