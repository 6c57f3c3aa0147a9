-- One consumer for all: each lease is known by its entry, and names of processes long gone would pile up in the group.
local GROUP, ME = 'workers', 'worker'

local function open(stream)
  if redis.call('EXISTS', stream) == 0 then
    redis.call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
  end
end

local function remove(room, id, entry)
  redis.call('XACK', KEYS[room], GROUP, entry)
  redis.call('XDEL', KEYS[room], entry)
  redis.call('HDEL', KEYS[room + 1], id)
  redis.call('ZREM', KEYS[room + 2], id)
end

-- Makes room: the oldest go. Whoever holds one of them has it already.
local function cut(room, most, counts, field)
  local over = redis.call('XLEN', KEYS[room]) - most
  local gone = 0
  while gone < over do
    local oldest = redis.call('XRANGE', KEYS[room], '-', '+', 'COUNT', math.min(over - gone, 100))
    if #oldest == 0 then break end
    for _, entry in ipairs(oldest) do
      remove(room, entry[2][2] or '', entry[1])
      gone = gone + 1
    end
  end
  if gone > 0 then redis.call('HINCRBY', counts, field, gone) end
  return gone
end

-- For how long an entry must have been held for its lease to be over. By the engine's own clock; `clock` (ms) stands
-- in for it in tests, which say when an entry was handed out.
local function held_ms(lease_ms, clock)
  if clock == '' then return tonumber(lease_ms) end
  local now = redis.call('TIME')
  return math.max(0, now[1] * 1000 + math.floor(now[2] / 1000) - clock + lease_ms)
end

-- Moves an entry to the dead letters; false when the engine has no memory for that: it stays for another time.
local function set_aside(room, dead, counts, pending, attempts, reason, most)
  local entry = redis.call('XRANGE', KEYS[room], pending, pending)[1]
  if not entry then
    redis.call('XACK', KEYS[room], GROUP, pending)
    return false
  end
  local id, at, body = entry[2][2] or '', entry[2][4] or '0', entry[2][6] or ''
  local added = redis.pcall('XADD', KEYS[dead], '*', 'id', id, 'at', at, 'body', body,
    'attempts', attempts, 'reason', reason)
  if type(added) == 'table' then return false end
  redis.call('HSET', KEYS[dead + 1], id, added)
  redis.call('ZADD', KEYS[dead + 2], at, id)
  remove(room, id, pending)
  cut(dead, most, counts, 'dead')
  return true
end

-- Those whose lease is over, from `after` on: lists of entry, consumer, ms held, times handed out.
local function ended(stream, over, after, count)
  return redis.call('XPENDING', stream, GROUP, 'IDLE', over, after, '+', count)
end
