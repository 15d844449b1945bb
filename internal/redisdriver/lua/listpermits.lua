local lock, permits = unpack(KEYS)
local cursor = unpack(ARGV)
-- Reply: {next cursor, limit, clock in ms, and of each claim that is found its id, value and end in ms}
--
-- It only reads.

-- fence.lua
-- permits.lua

local limit = head_of((fields_of(lock, '') or {})[1])
if not limit then
  return {'0', 0, 0}
end
local page = redis.call('HSCAN', lock, cursor or '0', 'COUNT', PAGE)
local reply = {page[1], limit, math.floor(clock() / 1000)}
for i = 1, #page[2], 2 do
  local claim, value = page[2][i], page[2][i + 1]
  if claim ~= '' and claim ~= '>' then
    local ends = redis.call('ZSCORE', permits, claim)
    reply[#reply + 1] = claim
    reply[#reply + 1] = value
    reply[#reply + 1] = tonumber(ends) or 0
  end
end
return reply
