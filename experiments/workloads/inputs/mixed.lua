-- Several kinds of work, one after the other: `lua - ROUNDS < mixed.lua`. Prints a checksum a kind.
local rounds = tonumber(arg and arg[1]) or 1

local state = 42
local function random(bound) -- our own generator: math.random differs between versions
  state = (state * 6364136223846793005 + 1442695040888963407) & 0x7fffffffffffffff
  return (state >> 33) % bound
end

local function queens(n)
  local columns, up, down, solutions = {}, {}, {}, 0
  local function place(row)
    if row > n then
      solutions = solutions + 1
      return
    end
    for column = 1, n do
      if not columns[column] and not up[row + column] and not down[row - column] then
        columns[column], up[row + column], down[row - column] = true, true, true
        place(row + 1)
        columns[column], up[row + column], down[row - column] = nil, nil, nil
      end
    end
  end
  place(1)
  return solutions
end

local function sorting(n)
  local items = {}
  for i = 1, n do
    items[i] = { key = random(1000), name = string.format("item-%04d", random(5000)) }
  end
  table.sort(items, function(a, b)
    if a.key ~= b.key then
      return a.key < b.key
    end
    return a.name < b.name
  end)
  local sum = 0
  for i = 1, n do
    sum = (sum + i * items[i].key) % 1000003
  end
  return sum
end

local function text(n)
  local words = {}
  for i = 1, n do
    words[i] = string.rep(string.char(97 + random(26)), 1 + random(6))
  end
  local line = table.concat(words, " ")
  local counts, distinct = {}, 0
  for word in line:gmatch("%a+") do
    if not counts[word] then
      distinct = distinct + 1
    end
    counts[word] = (counts[word] or 0) + 1
  end
  local swapped = line:gsub("(%a)%a* (%a)", "%2%1"):upper()
  return distinct * 100000 + #swapped
end

local function producers(n)
  local function producer(step)
    return coroutine.wrap(function()
      for i = 1, n do
        coroutine.yield(i * step)
      end
    end)
  end
  local a, b, sum = producer(3), producer(7), 0
  for _ = 1, n do
    sum = (sum * 31 + a() + b()) % 1000003
  end
  return sum
end

local Shape = {}
Shape.__index = Shape
local Square = setmetatable({}, { __index = Shape })
Square.__index = Square
function Shape:scaled(factor)
  return self:area() * factor
end
function Square:area()
  return self.side * self.side
end

local function objects(n)
  local total, kept = 0.0, {}
  for i = 1, n do
    local square = setmetatable({ side = random(100) / 8 }, Square)
    kept[i % 500] = square -- most become garbage soon
    total = total + square:scaled(0.5)
  end
  return total
end

local function matrix(n)
  local a, b, trace = {}, {}, 0.0
  for i = 1, n do
    a[i], b[i] = {}, {}
    for j = 1, n do
      a[i][j], b[i][j] = random(64) / 4, random(64) / 4
    end
  end
  for i = 1, n do
    for j = 1, n do
      local sum = 0.0
      for k = 1, n do
        sum = sum + a[i][k] * b[k][j]
      end
      if i == j then
        trace = trace + sum
      end
    end
  end
  return trace
end

for round = 1, rounds do
  local results = { queens(6), sorting(400), text(600), producers(800), objects(1500), matrix(22) }
  if round == 1 or round == rounds then
    print(round, table.unpack(results))
  end
end
