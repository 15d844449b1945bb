-- How holds are counted in the hash at a lock key.
--
-- The owner's field has the total of its holds, as Redisson writes it. Where the
-- caller named the owner, each claim (one process's hold) has its own absolute
-- count in a field beside it; else the claim is the owner, and what others who
-- named it as theirs have added is not its own.
--
-- Counts are set, never incremented: setting one twice changes nothing.

local function holds_of(lock, claim, owner)
  if claim ~= owner then
    return tonumber(redis.call('HGET', lock, claim)) or 0
  end
  local n = tonumber(redis.call('HGET', lock, owner)) or 0
  if n > 0 and redis.call('HLEN', lock) > 1 then
    local fields = redis.call('HGETALL', lock)
    for i = 1, #fields, 2 do
      if fields[i] ~= owner then
        n = n - (tonumber(fields[i + 1]) or 0)
      end
    end
  end
  return n
end

-- The claim's holds become n; returns the owner's new total.
local function set_holds(lock, claim, owner, n, before)
  local total = (tonumber(redis.call('HGET', lock, owner)) or 0) + n - before
  redis.call('HSET', lock, owner, string.format('%d', total))
  if claim ~= owner then
    if n > 0 then
      redis.call('HSET', lock, claim, string.format('%d', n))
    else
      redis.call('HDEL', lock, claim)
    end
  end
  return total
end
