-- Raises the fencing counter to a token other nodes know of.
local function raise_token(fence, token, retention)
  if token == '0' or (tonumber(redis.call('GET', fence)) or 0) >= tonumber(token) then
    return
  end
  local keep = redis.call('PTTL', fence)
  if keep < 0 then
    keep = retention
  end
  redis.call('SET', fence, token, 'PX', keep)
end
