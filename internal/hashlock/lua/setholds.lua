-- KEYS: the lock, its fencing counter (unused)
-- ARGV: claim id, owner, TTL (unused), retention (unused), holds of the claim (1 or more)
-- Reply: 1 set, 0 the claim does not hold the key
--
-- Sent twice: the count is absolute, so the second run changes nothing. The TTL
-- is left alone: re-entry neither extends nor shortens the lease.

if type_of(KEYS[1]) ~= 'hash' then
  return 0
end
local before = holds_of(KEYS[1], ARGV[1], ARGV[2])
if before <= 0 then
  return 0
end
set_holds(KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[5]), before)
return 1
