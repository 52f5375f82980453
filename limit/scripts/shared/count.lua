-- SPDX-License-Identifier: Apache-2.0
-- Takes of the permits of a window what is asked for. Of these, before have been taken, and from here on used are, and taken is
-- the instant of what has changed that.
local reply, runs, took, answer, n = {now, state, 0}, 0, 0, '', tonumber(ARGV[1])
local before, taken = used, now
if n then
  took = used + n <= permits and 1 or 0
  reply[3] = took
  used = used + took * n
elseif settles then
  local at
  do
    --#use settlement
    if by > 0 or own then
      used = math.min(math.max(0, used + by), 4294967295)
    end
    at = by < 0 and taken or now
  end
  taken, took, reply[3] = at, 1, 1
else
  for n, count in string.gmatch(ARGV[1], '(%d+):(%d+)') do
    local k = math.floor((permits - used) / n)
    k = math.max(0, math.min(tonumber(count), k))
    took, runs = took + k, runs + 1
    reply[2 + runs] = k
    used = used + k * n
  end
  answer = ',' .. table.concat(reply, ' ', 3)
end
