-- Those that wait for permits, in the order in which their callers came. turns is a sorted set of Lockers by when
-- the caller of each began to wait (µs, server clock), and places a hash that has of each
--
--   "claim count limit heard blocks inbox"   what it said last, by the claim of that attempt: it waits for count
--                                            permits of limit; heard is when (ms, server clock); blocks is 1 if it
--                                            blocks on its inbox
--
-- A claim is granted permits if each of those before it could have what it waits for, too: so whoever waits
-- for many is not passed by those that wait for few. Nothing is granted to a process that does not ask: a release
-- pushes to the inboxes of those that fit now, and they come in any order. A push that is lost costs a look,
-- which each process makes about once a second. One that is silent for BID ms is dead, and leaves; if it
-- comes again, it has its turn as before, by when its caller came. Both keys expire KEEP after the last
-- word of any of them.
--
-- The bid in the hash of permits is that of the first in line, unless a Locker of another strategy has
-- waited longer: so other strategies, and locks, leave to the line what is its own.
--
-- Places have the time, and no order of their own: a key that is lost costs nobody the turn. A caller's time only
-- moves to an earlier one, where an attempt is faster than the ones before: those that came after it stay behind it.
-- The next caller of the same Locker has its own time: it came BID ms later or more. An attempt that was on its way for so
-- long takes a later place, too; the next attempt of that caller puts this right.

-- limits.lua
-- push.lua
local MOST = 64 -- of a line are looked at by a script; those behind wait until the line is shorter

local function leave_turns(turns, places, who)
  redis.call('ZREM', turns, who)
  redis.call('HDEL', places, who)
end

-- Goes through the line, the first one first. The dead leave it.
local function line_of(turns, places, now)
  local i = 0
  return function()
    while true do
      local who, since = unpack(redis.call('ZRANGE', turns, i, i, 'WITHSCORES'))
      if not who then
        return nil
      end
      local w = {who = who, since = tonumber(since)}
      w.claim, w.count, w.limit, w.heard, w.blocks, w.inbox =
        string.match(redis.call('HGET', places, who) or '', '^(%S+) (%d+) (%d+) (%d+) (%d) (.*)$')
      local left = w.claim and w.heard + BID - now
      if left and left > 0 and left <= BID then
        i = i + 1
        return w
      end
      leave_turns(turns, places, who)
    end
  end
end

-- Wakes those that may have what they wait for. out is how many permits are out.
local function wake_line(turns, places, out, now)
  local n = 0
  for w in line_of(turns, places, now) do
    out, n = out + w.count, n + 1
    if out > tonumber(w.limit) or n > MOST then
      return
    elseif w.blocks == '1' then
      push(w.inbox, w.claim)
    end
  end
end
