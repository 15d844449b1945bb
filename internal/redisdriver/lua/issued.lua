-- Returns what issue gave the grant in force, for the same command: no grant was made
-- since.
local function issued(fence, retention, tokens)
  local last = retention ~= '0' and redis.call('GET', fence)
  return last and last - tokens + 1 or issue(fence, retention, tokens)
end
