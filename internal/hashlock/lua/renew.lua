-- KEYS: the lock, its fencing counter
-- ARGV: claim id, owner, TTL in ms, retention of the counter in ms
-- Reply: 1 renewed, 0 the claim does not hold the key
--
-- Sent twice or late: the claim id was never and will never be another grant's,
-- so at worst the present grant lasts longer; what is gone is not made again.

if type_of(KEYS[1]) ~= 'hash' or holds_of(KEYS[1], ARGV[1], ARGV[2]) <= 0 then
  return 0
end
extend(KEYS[1], ARGV[3])
keep_token(KEYS[2], ARGV[1], ARGV[2], ARGV[4])
return 1
