local lock, queue, permits, fence = unpack(KEYS)
local ask, listened, publish = unpack(ARGV) -- the kind of the signal that the holder is to get, ''; channel and command of releases, nil: the strategy publishes none
-- Reply: {type, ms remaining, the string or the fields of the hash, the fencing counter,
--        the fields of blpop's queue, how many listen on the channel, the clock in µs, the claim that was sent the signal}
--
-- It only reads, and may send a signal.

-- fence.lua
-- permits.lua
-- signal.lua

local MOST_BYTES, MOST_FIELDS = 1024, 4096 -- a larger value is no lock of a known layout

local kind, content = redis.call('TYPE', lock).ok, {}
if kind == 'string' and redis.call('STRLEN', lock) <= MOST_BYTES then
  content = redis.call('GET', lock)
elseif kind == 'hash' and head_of(redis.call('HGET', lock, '')) then
  -- The head counts the permits that are out. Those that have ended are subtracted, as far as a look at some claims shows.
  local limit, out = head_of(redis.call('HGET', lock, ''))
  local now = math.floor(clock() / 1000)
  for _, claim in ipairs(redis.call('ZRANGEBYSCORE', permits, '-inf', now, 'LIMIT', 0, PAGE)) do
    out = out - (tonumber(string.match(redis.call('HGET', lock, claim) or '', '^%d+')) or 0)
  end
  content = {'', string.format('permits %d %d', limit, math.max(out, 0))}
elseif kind == 'hash' and redis.call('HLEN', lock) <= MOST_FIELDS then
  content = redis.call('HGETALL', lock)
end

-- Returns the holder if it is the only one in the lock; else the caller chooses whom to ask.
local function only_holder()
  if type(content) == 'string' then
    return content
  end
  local only
  for i = 1, #content, 2 do
    if content[i] ~= '' then
      if only then
        return nil
      end
      only = content[i]
    end
  end
  return only
end

local asked = ask ~= '' and only_holder()
asked = asked and signal(ask, lock, asked) and asked or nil

local count = publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
local listen = listened and redis.pcall('PUBSUB', count, listened)[2]

-- Others' things may be there; an error is a table.
local counter, waiting = redis.pcall('GET', fence), redis.pcall('HGETALL', queue)
counter = type(counter) == 'string' and counter or 0

return {
  kind, redis.call('PTTL', lock), content, tonumber(counter) or 0,
  waiting.err and {} or waiting, tonumber(listen) or 0, clock(), asked,
}
