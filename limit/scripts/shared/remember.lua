-- SPDX-License-Identifier: Apache-2.0
if took == 0 then
  grants = first and string.sub(value, first) or ''
elseif grants ~= '' then
  -- Forget what is ten seconds old, and the oldest for want of room; then note when the last of these was.
  local from, tenths, dropped = 1, math.floor(now / 100000), nil
  while from <= #grants do
    local at, behind = string.match(grants, '^;[^;,]*,(%d+)[^;]*()', from)
    at = tonumber(at)
    if at and tenths - at <= 100 then
      if #grants - from < 16384 then
        break
      end
      dropped = at
    end
    from = behind or #grants + 1
  end
  grants = (dropped and string.format(';-,%d', dropped) or '') .. string.sub(grants, from)
end
if took > 0 and #id == 15 then
  grants = grants .. id .. string.format(',%d', math.floor(now / 100000))
  if epoch then
    grants = grants .. string.format('.%05d@', now % 100000) .. (epoch ~= anew and epoch or '')
  end
  grants = grants .. answer
end
