local lock, queue, seen = unpack(KEYS)
local claim, owner, channel, publish = unpack(ARGV)
-- Reply: 1 given back, 0 the claim does not hold the key
--
-- Sent twice or late: the second run finds nothing of this claim and touches
-- nothing. Only the run that frees the key passes it on, in the same step.

if owner == '' and is_alone(lock, claim) then
  redis.call('DEL', lock)
else
  local total = change(lock, claim, owner, {count = 0})
  if total ~= 0 then
    return total and 1 or 0
  end
end
pass_on(lock, queue, seen, channel, publish)
return 1
