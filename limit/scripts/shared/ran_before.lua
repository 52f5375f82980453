-- SPDX-License-Identifier: Apache-2.0
-- The value tells whether the call has run before under its id. Behind the state, which has no ";", there is an entry
-- for each process that was granted permits in the last ten seconds: the id of its last call that was granted some, ","
-- and the time in tenths of a second; where grants can be settled ".", us of that tenth, "@" and the epoch, which is left out if
-- it began with this call; then "," and what the call was granted where its requests do not say. One entry is enough,
-- since a process makes one call of a key at a time, and its ids grow. Where room is short the oldest entries are
-- dropped, and ";-," with the time of the last of these stands before the others. From here on grants are the entries
-- of the other processes, and again is what its entry says of the call if it has run.
local epoch, anew -- of limiters whose grants can be settled
local first = string.find(value, ';', 1, true)
local state, grants, again = value, '', nil
local own = first and #id == 15 and string.find(value, string.sub(id, 1, 9), first, true)
if own then
  local last = string.sub(value, own, own + 14)
  if since and last == id then
    again = string.match(value, '^,(%d[^;]*)', own + 15)
  elseif last >= id then
    return {-1, now} -- the process has made a later call, and given this one up
  end
  local behind = string.find(value, ';', own + 15, true)
  if behind or own > first then
    grants = string.sub(value, first, own - 1) .. (behind and string.sub(value, behind) or '')
  end
elseif first then
  grants = string.sub(value, first)
end
if first then
  state = string.sub(value, 1, first - 1)
end
if since and not own and #id == 15 then
  -- Then it has not run, unless that is no longer remembered: after ten seconds, or for want of room.
  local dropped = string.match(grants, '^;%-,(%d+)')
  if now - since > 9800000 or dropped and dropped * 100000 + 100000 > since then
    return {-1, now}
  end
end
