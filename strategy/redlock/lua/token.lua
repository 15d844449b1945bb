-- Raises the fencing counter to a token other nodes know of. It then rests on their
-- clocks, so it is kept for the whole retention anew: see docs/decisions/0008.
local function raise_token(fence, token, retention)
  if token == '0' or (tonumber(redis.call('GET', fence)) or 0) >= tonumber(token) then
    return
  end
  local keep = math.max(redis.call('PTTL', fence), tonumber(retention))
  redis.call('SET', fence, token, 'PX', string.format('%.0f', keep))
end
