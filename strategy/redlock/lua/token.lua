-- Tokens of a quorum; docs/decisions/0008 has the argument.

-- The tokens this node proposes for a grant, so many in a row: greater than every one it
-- has seen, and not behind its clock, in microseconds. A node that has seen none starts
-- at its clock; else the clock counts in tenths of a second only, so that nodes which
-- took part in the last grant propose the same. Returns the first; the counter is the
-- last.
local function propose(fence, retention, tokens)
  if retention == '0' then
    return 0
  end
  local last = redis.call('INCRBY', fence, tokens)
  local now = redis.call('TIME')
  local at = now[1] * 1000000 + now[2]
  -- Not tostring: that rounds to 14 digits.
  if last == tonumber(tokens) then
    redis.call('SET', fence, string.format('%.0f', at + tokens - 1), 'PX', retention)
    return at
  end
  local first = last - tokens + 1
  local behind = at - at % 100000 - first
  if behind > 0 then
    redis.call('INCRBY', fence, string.format('%.0f', behind))
    first = first + behind
  end
  return first
end

-- The proposal made before for the grant in force.
local function proposed(fence, retention, tokens)
  local last = retention ~= '0' and redis.call('GET', fence)
  return last and last - tokens + 1 or propose(fence, retention, tokens)
end

-- Makes this node know of a token. What it knows then rests on other nodes' clocks,
-- so it is kept for the whole retention anew.
local function raise_token(fence, token, retention)
  if token == '0' or (tonumber(redis.call('GET', fence)) or 0) >= tonumber(token) then
    return
  end
  local keep = math.max(redis.call('PTTL', fence), tonumber(retention))
  redis.call('SET', fence, token, 'PX', string.format('%.0f', keep))
end
