-- Holds of several claims; claim.lua has the fields.

local function is_claim(field)
  return string.find(field .. '?', '^%x+%-%x+%-%x+%-%x+%-%x+:%d+%?') -- what follows ? is metadata
end

-- The holds of owner in the hash, nil if it is another's: claims, each with its count,
-- expiry and token; gone, the claims that have expired, which are not counted; kind, token
-- and asked, of the field ''; and single if the owner is the only claim.
local function holds_of(lock, owner, now)
  local left = now + redis.pcall('PTTL', lock)
  local claims, gone, more, total, sum, single = {}, {}, nil, nil, 0, true
  local fields = redis.pcall('HGETALL', lock)
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    local count, expiry, token = string.match(value, '^(%d+) (%d+) (%d+)$')
    if field == owner then
      total = tonumber(string.match(value, '^%d+$'))
    elseif field == '' then
      more = value
    elseif not count or not is_claim(field) then
      return nil -- application data, or another kind of lock of Redisson's
    else
      single, sum = false, sum + count
      if tonumber(expiry) > now then
        claims[field] = {count = tonumber(count), expiry = tonumber(expiry), token = token}
      else
        gone[#gone + 1] = field
      end
    end
  end
  local kind, token, expiry, asked = string.match(more or '', '^(%a+) (%S+) (%S+) (%d)$')
  local redissons = single and not more and left >= now and is_claim(owner)
  if not total or more and not kind or not (kind or not single or redissons) then
    return nil
  end
  expiry = tonumber(expiry) or left
  if total > sum and expiry > now then
    claims[owner] = {count = total - sum, expiry = expiry}
  end
  return {claims = claims, gone = gone, kind = kind, token = token or '-', asked = asked or '0', single = single}
end

-- Writes holds back; returns the owner's total. At 0 the key is gone.
--
-- PEXPIRE comes first: it may be sent to a server that is out of memory, and the commands
-- behind the first write of a script may, too. So renewals and releases go through there.
local function save(lock, owner, holds, now)
  local total, last = 0, 0
  for _, c in pairs(holds.claims) do
    total, last = total + c.count, math.max(last, c.expiry)
  end
  if total == 0 then
    redis.call('DEL', lock)
    return 0
  end
  redis.call('PEXPIRE', lock, last - now) -- more than 0: ended claims are not among them
  for claim, c in pairs(holds.claims) do
    if claim ~= owner then
      redis.call('HSET', lock, claim, string.format('%d %.0f %s', c.count, c.expiry, c.token))
    end
  end
  for _, claim in ipairs(holds.gone) do
    redis.call('HDEL', lock, claim)
  end
  local kind, expiry, own = holds.kind, '-', holds.claims[owner]
  if is_ours(owner) then -- Java's extends the key only
    kind, expiry = kind or 'hash', string.format('%.0f', own and own.expiry or 0)
  end
  if kind then
    redis.call('HSET', lock, '', table.concat({kind, holds.token, expiry, holds.asked}, ' '))
  end
  redis.call('HSET', lock, owner, total)
  return total
end

-- Changes one claim's {count, expiry}; a count of 0 ends it. Returns the owner's total,
-- or nil if the claim does not hold the key.
local function change(lock, claim, owner, to)
  if not redis.pcall('HGET', lock, claim) then -- in a hash of any size
    return nil
  end
  owner = owner == '' and claim or owner
  local now = math.floor(clock() / 1000)
  local holds = holds_of(lock, owner, now)
  local c = holds and holds.claims[claim]
  if not c then
    return nil
  end
  c.count = to.count or c.count
  c.expiry = to.ttl and math.max(c.expiry, now + to.ttl) or c.expiry
  if c.count == 0 then
    holds.claims[claim] = nil
    holds.gone[#holds.gone + 1] = claim ~= owner and claim or nil
  end
  return save(lock, owner, holds, now)
end
