local FEW = 64 -- fields; a larger hash is not looked through for the owner's name

-- Returns the owner that holds the hash, the field with a mere number; '' if none is found, or the
-- user may not look.
local function holder_of(lock)
  if redis.call('HLEN', lock) <= FEW then
    local fields = redis.pcall('HGETALL', lock)
    for i = 1, #fields, 2 do
      if fields[i] ~= '' and string.find(fields[i + 1], '^%d+$') then
        return fields[i]
      end
    end
  end
  return ''
end
