local lock, permits = unpack(KEYS)
local claim, channel, publish = unpack(ARGV)
channel, publish = channel or 'redisson_lock__channel:{' .. lock .. '}', publish or 'PUBLISH'
-- Reply: 1 given back, 0 the claim has none
--
-- Sent twice or late: the second run finds nothing of this claim. The key goes with the last claim, or
-- stays for as long as a bid does: the bidder is next. The bid of a claim ends with its release: then nobody
-- waits for what was kept free.

-- fence.lua
-- permits.lua

local fields = fields_of(lock, '', '>', claim) or {}
local limit, out = head_of(fields[1])
local now = math.floor(clock() / 1000)
local bidder, _, _, left = bid_of(fields[2], now)
if not out or not fields[3] then
  if out and bidder == claim then
    redis.call('HDEL', lock, '>')
    if out == 0 then
      redis.call('DEL', lock)
    end
    redis.pcall(publish, channel, '0')
  end
  return 0
end
local _, held = give_back(lock, permits, fields, claim, now, bidder and left)
redis.pcall(publish, channel, '0')
return held and 1 or 0
