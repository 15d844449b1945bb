local function push(inbox, message)
  redis.pcall('RPUSH', inbox, message) -- the process looks by itself, too
  redis.pcall('PEXPIRE', inbox, KEEP)
end
