-- Reports whether an owner is, or is named like, a claim of ours; Java's are of version 4.
local function is_ours(owner)
  return string.find(owner, '^%x+%-%x+%-8')
end

-- Sets when a key ends that was just written. A user who may not do that leaves no key
-- behind for ever.
local function expire(key, ttl)
  local expires = redis.pcall('PEXPIRE', key, ttl)
  if expires ~= 1 then
    if redis.call('PTTL', key) < 0 then
      redis.call('DEL', key)
    end
    error(expires.err)
  end
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
  expire(lock, ttl)
end
