-- SPDX-License-Identifier: Apache-2.0
-- Runs scripts of Redis by the rules of Lua 5.4, for main.go, which it asks for each redis.call. It is strict where servers
-- differ: a float among the arguments of a command, or in a reply, is an error, even one that is whole, and so is a reply
-- that has a nil before its end. If the global dragonfly is true, scores are floats, as they are there, and floats among
-- the arguments are written as there.
--
-- Both sides send lists of strings: their number, and each with its length before it, four bytes each.

local function receive()
  local list = {}
  local head = io.read(4)
  if not head then
    os.exit()
  end
  for i = 1, string.unpack('<I4', head) do
    local n = string.unpack('<I4', io.read(4))
    list[i] = n == 0 and '' or io.read(n)
  end
  return list
end

local function send(...)
  io.write(string.pack('<I4', select('#', ...)))
  for _, s in ipairs({...}) do
    io.write(string.pack('<s4', s))
  end
  io.flush()
end

-- parse returns the value of RESP2 that begins at a byte of s, and where the next one begins.
local function parse(s, at)
  local kind, line, from = s:match('^(.)([^\r]*)\r\n()', at)
  local n = math.tointeger(line)
  if kind == ':' then
    return n, from
  elseif kind == '+' then
    return {ok = line}, from
  elseif kind == '-' then
    return {err = line}, from
  elseif n < 0 then
    return false, from
  elseif kind == '$' then
    return s:sub(from, from + n - 1), from + n + 2
  end
  local list = {}
  for i = 1, n do
    list[i], from = parse(s, from)
  end
  return list, from
end

local REPLY = 'a number of the reply'

local function whole(x, what)
  if math.type(x) == 'float' then
    if dragonfly and what ~= REPLY then
      return string.format('%.17g', x)
    end
    error({err = string.format('ERR Lua 5.4: %s is the float %.17g', what, x)}, 0)
  end
  return string.format('%d', x)
end

-- encode returns the reply of a script in RESP2.
local function encode(v)
  local kind = type(v)
  if kind == 'number' then
    return ':' .. whole(v, REPLY) .. '\r\n'
  elseif kind == 'string' then
    return '$' .. #v .. '\r\n' .. v .. '\r\n'
  elseif kind ~= 'table' then
    return v == true and ':1\r\n' or '$-1\r\n'
  elseif v.err or v.ok then
    return v.err and '-' .. v.err .. '\r\n' or '+' .. v.ok .. '\r\n'
  end
  local n, parts = 0, {}
  for _ in pairs(v) do
    n = n + 1
  end
  for i = 1, n do
    if v[i] == nil then
      error({err = 'ERR Lua 5.4: number ' .. i .. ' of the reply is nil, and others follow'}, 0)
    end
    parts[i] = encode(v[i])
  end
  return '*' .. n .. '\r\n' .. table.concat(parts)
end

-- score returns a score as Dragonfly gives it to scripts.
local function score(s)
  return s == 'inf' and math.huge or s == '-inf' and -math.huge or tonumber(s) + 0.0
end

local function pcall_redis(...)
  local args = {...}
  for i, x in ipairs(args) do
    if type(x) == 'number' then
      args[i] = whole(x, 'argument ' .. i .. ' of ' .. args[1])
    elseif type(x) ~= 'string' then
      error({err = 'ERR Lua 5.4: argument ' .. i .. ' of ' .. args[1] .. ' is a ' .. type(x)}, 0)
    end
  end
  if #args < select('#', ...) then
    error({err = 'ERR Lua 5.4: an argument of ' .. args[1] .. ' is nil'}, 0)
  end
  send('call', table.unpack(args))
  local v = parse(receive()[1], 1)
  if dragonfly and args[1] == 'ZSCORE' and v then
    v = score(v)
  elseif dragonfly and table.concat(args, ' ', 4):find('WITHSCORES', 1, true) and not v.err then
    for i = 2, #v, 2 do
      v[i] = score(v[i])
    end
  end
  return v
end

local function call_redis(...)
  local v = pcall_redis(...)
  if type(v) == 'table' and v.err then
    error(v, 0)
  end
  return v
end

local shared = {redis = {call = call_redis, pcall = pcall_redis}}
for _, name in ipairs({'string', 'math', 'table', 'tonumber', 'tostring', 'ipairs', 'pairs', 'next', 'type', 'select',
  'error', 'pcall'}) do
  shared[name] = _G[name]
end

while true do
  local asked = receive() -- the text, the number of keys, keys and arguments
  local keys = math.tointeger(asked[2])
  local globals = {KEYS = table.move(asked, 3, 2 + keys, 1, {}), ARGV = table.move(asked, 3 + keys, #asked, 1, {})}
  setmetatable(globals, {
    __index = function(_, name)
      return shared[name] or error('there is no global ' .. name, 2)
    end,
    __newindex = function(_, name)
      error('a new global ' .. name, 2)
    end,
  })
  local script, wrong = load(asked[1], '=script', 't', globals)
  local ok, reply = false, wrong
  if script then
    ok, reply = pcall(function()
      return encode(script())
    end)
  end
  if ok then
    send('reply', reply)
  else
    send('reply', encode(type(reply) == 'table' and reply or {err = 'ERR Lua 5.4: ' .. tostring(reply)}))
  end
end
