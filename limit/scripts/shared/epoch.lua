-- SPDX-License-Identifier: Apache-2.0
-- The state is numbers, "@" and the epoch: the id of the call with which it began. A limiter begins when it is unused: when
-- there is no key, when the window has ended or the bucket is full, and when the clock was put back, from when on what has
-- come in for a grant can no longer be told. Only what was granted in the same epoch gives anything back.
local numbers
numbers, epoch = string.match(state, '^([^@]*)@?(.*)$')
anew = string.sub(id, 2)
local settles = string.byte(ARGV[1]) == 61 -- whether it is a settlement, which goes by the numbers of the last grant while that counts
if state == '' then
  epoch = anew
end
