-- Tokens of a quorum; docs/decisions/0008 has the argument.
--
-- A node keeps its counter for as long as it has the lock, and for the retention beyond each
-- grant, join and renewal (keep.lua): a node without one starts at its clock, and a clock that
-- was set back while the lock was held would lead to a smaller token.

-- The server's clock, in microseconds.
local function clock()
  local now = redis.call('TIME')
  return now[1] * 1000000 + now[2]
end

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
  local at = clock()
  -- Not tostring: that rounds to 14 digits.
  if last == tonumber(tokens) then
    redis.call('SET', fence, string.format('%.0f', at + tokens - 1), 'PX', retention)
    return at
  end
  keep(fence, retention)
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
  keep(fence, retention)
  return last and last - tokens + 1 or propose(fence, retention, tokens)
end

-- Makes this node know of a token. It may come from another node's clock, so it is kept
-- for the whole retention anew, and beyond that until this node's clock has caught up with
-- it: a counter that begins at the clock then is not behind it.
local function raise_token(fence, token, retention)
  if token == '0' then
    return
  end
  if (tonumber(redis.call('GET', fence)) or 0) >= tonumber(token) then
    keep(fence, retention)
    return
  end
  local ahead = math.max(0, math.ceil((token - clock()) / 1000))
  local keep = math.max(redis.call('PTTL', fence), retention + ahead)
  redis.call('SET', fence, token, 'PX', string.format('%.0f', keep))
end
