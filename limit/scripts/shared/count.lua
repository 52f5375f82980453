-- SPDX-License-Identifier: Apache-2.0
-- Takes of the permits of a window what is asked for. Of these, used have been taken, and window is the mark of its grants.
local reply, runs, took, answer, n = {now, state, 0}, 0, 0, '', tonumber(ARGV[1])
if n then
  took = used + n <= permits and 1 or 0
  reply[3] = took
  used = used + took * n
elseif string.byte(ARGV[1]) == 61 then
  local by, mark, owed = string.match(ARGV[1], '^=(%-?%d+) (%d+) (%d+)$')
  if tonumber(by) > 0 or tonumber(mark) == window then
    used = math.min(math.max(0, used + by), 4294967295)
  end
  took, reply[3] = 1, 1
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
