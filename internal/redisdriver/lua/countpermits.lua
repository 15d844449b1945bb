local lock, permits = unpack(KEYS)
-- Reply: {out, limit, 1 if more claims have ended than a call sweeps else 0}, {0, 0, 0} if the key is free;
--        {-1, type} if it is held as something else

-- fence.lua
-- permits.lua

local limit, out = head_of((fields_of(lock, '') or {})[1])
if not out then
  local kind = redis.call('TYPE', lock).ok
  return kind == 'none' and {0, 0, 0} or {-1, kind}
end
local now = math.floor(clock() / 1000)
local swept = sweep(lock, permits, now, out, 0)
if swept ~= out then
  put_head(lock, limit, swept)
end
local more = swept > 0 and redis.call('ZRANGEBYSCORE', permits, '-inf', now, 'LIMIT', 0, 1) or {}
return {swept, limit, #more}
