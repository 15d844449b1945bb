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

-- A process that joins a hold needs its token: the counter must outlive the hold.
local function keep_token(fence, claim, owner, retention)
  if claim ~= owner and retention ~= '0' then
    extend(fence, retention)
  end
end

-- Takes a key where nothing is; returns the token.
local function take(lock, fence, claim, owner, ttl, retention)
  local token = issue_token(fence, retention)
  keep_token(fence, claim, owner, retention)
  set_holds(lock, claim, owner, 1, 0)
  redis.call('PEXPIRE', lock, ttl)
  return token
end

-- Lets a claim in whose owner holds the hash already: by the same claim (the
-- command was sent twice: its count is left) or by another (a process that names
-- the same owner: it joins the hold). Returns the hold's token, or nil if
-- another owner has it. Not every field is an owner: a read-write lock of
-- Redisson's has "mode".
local function join(lock, fence, claim, owner, ttl, retention)
  if not tonumber(redis.call('HGET', lock, owner)) then
    return nil
  end
  local token = current_token(fence, retention)
  keep_token(fence, claim, owner, retention)
  if holds_of(lock, claim, owner) == 0 then
    set_holds(lock, claim, owner, 1, 0)
  end
  extend(lock, ttl)
  return token
end

local FEW = 64 -- fields; a hash that has more is not looked through

local function is_claim(field)
  return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$')
end

-- The owner that holds the hash, '' if that cannot be told. The total of a named owner
-- is the greatest count. One claim beside it has the same, and is told by its form; if
-- the owner has that form, too, by its place: Redis keeps the order of short fields.
-- A grant that blpop keeps for a waiter has no owner.
local function holder_of(lock)
  if redis.call('HLEN', lock) > FEW then
    return ''
  end
  local holder, most = '', 0
  local fields = redis.call('HGETALL', lock)
  for i = 1, #fields, 2 do
    local field, n = fields[i], tonumber(fields[i + 1]) or 0
    if (n > most or n == most and is_claim(holder) and not is_claim(field))
        and not string.find(field, '^grant:locker:inbox:') then
      holder, most = field, n
    end
  end
  return holder
end

-- Takes a claim's holds away. Returns nil if it has none, else the owner's new
-- total; at 0 the key is to be deleted.
local function leave(lock, claim, owner)
  if type_of(lock) ~= 'hash' then
    return nil
  end
  local before = holds_of(lock, claim, owner)
  if before <= 0 then
    return nil
  end
  return set_holds(lock, claim, owner, 0, before)
end
