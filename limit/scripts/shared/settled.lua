-- SPDX-License-Identifier: Apache-2.0
-- From here on by is the parts that a settlement takes, or gives back if it is below 0, and given is raised.
--#use settlement
by = by * cost
if by < 0 then
  -- No more comes back than has not come in since. See pace.giveBack.
  local back = 0
  if own then
    owed = owed - math.min((given - past) * flow, owed - n * cost) - math.max(0, now - from) * flow
    back = math.max(0, math.min(-by, owed))
  end
  by, given = -back, given + math.ceil(back / flow)
  if given > 4503599627370496 then
    given, epoch = 0, anew
  end
end
