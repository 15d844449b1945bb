-- Returns a token of the grant in force, for the same command: no grant was made since. How many
-- were reserved is not known any more: it is the last of them, and alone.
local function issued(fence, retention, tokens)
  local last = retention ~= '0' and redis.call('GET', fence)
  if last then
    return tonumber(last), tonumber(tokens) > 1 and 1 or nil
  end
  return issue(fence, retention, tokens)
end
