-- SPDX-License-Identifier: Apache-2.0
-- The state is numbers, "@" and the epoch: the id of the call with which it began. A limiter begins when it is unused: when
-- there is no key, when the window has ended or the bucket is full, and when the clock was put back, from when on what has
-- come in for a grant can no longer be told. Only what was granted in the same epoch gives anything back.
local numbers
numbers, epoch = string.match(state, '^([^@]*)@?(.*)$')
anew = string.sub(id, 2)
if state == '' then
  epoch = anew
end
