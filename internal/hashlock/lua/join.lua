local MOST = 1024 -- fields; a hash that has more is not looked through for a hold to join

-- Lets a claim in whose owner holds the hash already: by the same claim (the command
-- was sent twice: its count is left) or by another (a process that names the same
-- owner). Returns the hold's token, and how many it has from there on unless that is all
-- that were asked for; or nil if the hash is another's. A hold without a token is given one.
local function join(lock, fence, claim, owner, ttl, retention, tokens)
  local self = owner == '' and claim or owner
  if not redis.call('HGET', lock, self) or redis.call('HLEN', lock) > MOST then
    return nil
  end
  if owner == '' and is_alone(lock, claim) then
    extend(lock, ttl)
    return issued(fence, retention, tokens)
  end
  local now = math.floor(clock() / 1000)
  local holds = holds_of(lock, self, now)
  if not holds or owner == '' and not holds.claims[claim] then
    return nil
  end
  local token = tonumber(holds.token) or 0
  for _, c in pairs(holds.claims) do
    token = math.max(token, tonumber(c.token) or 0)
  end
  if token == 0 and retention ~= '0' then
    local counter = holds.single and holds.token == '-' -- where it is that of the last grant
    token = counter and issued(fence, retention, 1) or issue(fence, retention, 1)
  end
  if holds.single then
    holds.token = string.format('%.0f', token)
  end
  local known = holds.claims[claim]
  local c = known or {count = 1, expiry = 0}
  c.expiry, c.token = math.max(c.expiry, now + ttl), string.format('%.0f', token)
  holds.claims[claim] = c
  if not known then -- refused by a server that is out of memory, which save is not
    redis.call('HSET', lock, claim, string.format('%d %.0f %s', c.count, c.expiry, c.token))
  end
  save(lock, self, holds, now)
  keep(fence, retention) -- it may last for longer than those before
  return retention == '0' and 0 or token, 1
end
