"""The Lua of the Redis queue: each script is one step that happens whole, on keys of one hash tag.

A room is three keys: a stream (who waits, in what order, who is held since when and for which time), a hash from id to
stream entry (so that an id waits once, and goes by its id), and a sorted set of ids by age. Entries are
`id, at, body` and, of dead letters, `attempts, reason`. The keys of a room stand together.

Nothing may be written before what the engine refuses when its memory is full (adding), or a step would happen half.
"""

from __future__ import annotations

from typing import Final

from gaugeway.storage.engines.redis.connection import Script

# One consumer for all: each lease is known by its entry, and names of processes long gone would pile up in the group.
_COMMON: Final = """
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
"""

PUT = Script(
    _COMMON
    + """
-- KEYS: the room; unless for supplements, the room of dead letters; the counts. ARGV: the most that may wait, the
-- field in which is counted what had to go, then id, at, body of each. Returns how many went.
local counts = KEYS[#KEYS]
open(KEYS[1])
for i = 3, #ARGV, 3 do
  local id, at = ARGV[i], ARGV[i + 1]
  local dead = #KEYS > 4 and redis.call('HEXISTS', KEYS[5], id) == 1
  if not dead and redis.call('HEXISTS', KEYS[2], id) == 0 then
    local entry = redis.call('XADD', KEYS[1], '*', 'id', id, 'at', at, 'body', ARGV[i + 2])
    redis.call('HSET', KEYS[2], id, entry)
    redis.call('ZADD', KEYS[3], at, id)
  end
end
return cut(1, tonumber(ARGV[1]), counts, ARGV[2])
"""
)

LEASE = Script(
    _COMMON
    + """
-- KEYS: the room; unless for supplements, the room of dead letters and the counts. ARGV: ms of a lease, how many are
-- wanted, times one may be handed out (0: for ever), clock or '', the most dead letters.
-- Returns how many were set aside, and lists of entry, id, times handed out, body.
local wanted, most, clock = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
open(KEYS[1])
local over, buried, leases = held_ms(ARGV[1], clock), 0, {}
local function add(entry, attempt)
  leases[#leases + 1] = {entry[1], entry[2][2] or '', attempt, entry[2][6] or ''}
end
-- Not XAUTOCLAIM, which would hand out once more what is to be set aside, and does not tell the times.
local after, more = '-', true
while more and #leases < wanted do
  local late = ended(KEYS[1], over, after, 100)
  more = #late == 100
  for _, pending in ipairs(late) do
    after = '(' .. pending[1]
    if most > 0 and pending[4] >= most then
      if set_aside(1, 4, KEYS[#KEYS], pending[1], pending[4], 'attempts', tonumber(ARGV[5])) then
        buried = buried + 1
      end
    elseif #leases < wanted then
      local claim = {'XCLAIM', KEYS[1], GROUP, ME, 0, pending[1]}
      if clock ~= '' then claim[7] = 'TIME'; claim[8] = clock end
      local entry = redis.call(unpack(claim))[1]
      if entry then add(entry, pending[4] + 1) else redis.call('XACK', KEYS[1], GROUP, pending[1]) end
    end
  end
end
if #leases < wanted then
  local read = redis.call('XREADGROUP', 'GROUP', GROUP, ME, 'COUNT', wanted - #leases, 'STREAMS', KEYS[1], '>')
  for _, entry in ipairs(read and read[1][2] or {}) do
    if clock ~= '' then redis.call('XCLAIM', KEYS[1], GROUP, ME, 0, entry[1], 'TIME', clock, 'JUSTID') end
    add(entry, 1)
  end
end
return {buried, leases}
"""
)

ACK = Script(
    _COMMON
    + """
-- KEYS: one or more rooms. ARGV: ids.
for room = 1, #KEYS, 3 do
  for _, id in ipairs(ARGV) do
    local entry = redis.call('HGET', KEYS[room + 1], id)
    if entry then remove(room, id, entry) end
  end
end
"""
)

DISCARD = Script(
    _COMMON
    + """
-- KEYS: the room. ARGV: entries that make no sense.
for _, name in ipairs(ARGV) do
  local entry = redis.call('XRANGE', KEYS[1], name, name)[1]
  if entry then remove(1, entry[2][2] or '', name) end
end
"""
)

SET_ASIDE = Script(
    _COMMON
    + """
-- KEYS: the room, the room of dead letters, the counts. ARGV: the most dead letters, then entry, attempts, reason of
-- each.
for i = 2, #ARGV, 3 do
  set_aside(1, 4, KEYS[7], ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[1]))
end
"""
)

REJECT = Script(
    _COMMON
    + """
-- KEYS: the room, the room of dead letters, the counts. ARGV: the most dead letters, id, reason.
local entry = redis.call('HGET', KEYS[2], ARGV[2])
if entry then
  open(KEYS[1])
  local pending = redis.call('XPENDING', KEYS[1], GROUP, entry, entry, 1)[1]
  set_aside(1, 4, KEYS[7], entry, pending and pending[4] or 0, ARGV[3], tonumber(ARGV[1]))
end
"""
)

DEPTH = Script(
    _COMMON
    + """
-- KEYS: the room, the room of dead letters, the counts. ARGV: ms of a lease, times one may be handed out, clock or '',
-- the most dead letters. Returns how many were set aside, wait, are leased and are dead; the least age or ''; how many
-- of the first and of the second room ever had to make room for others; and about how many bytes the first takes up.
open(KEYS[1])
local over, most, buried = held_ms(ARGV[1], ARGV[3]), tonumber(ARGV[2]), 0
local held = redis.call('XPENDING', KEYS[1], GROUP)[1]
local late = held > 0 and ended(KEYS[1], over, '-', held) or {}
for _, pending in ipairs(late) do
  if pending[4] >= most and set_aside(1, 4, KEYS[7], pending[1], pending[4], 'attempts', tonumber(ARGV[4])) then
    buried = buried + 1
  end
end
local oldest = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2] or ''
local counts = redis.call('HMGET', KEYS[7], 'samples', 'dead')
-- About: the oldest stand for all, with what the engine keeps beside each. MEMORY USAGE would need a right more.
local waiting, looked, used = redis.call('XLEN', KEYS[1]), redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 50), 0
for _, entry in ipairs(looked) do used = used + #(entry[2][6] or '') + 250 end
if #looked > 0 then used = math.floor(used / #looked * waiting) end
return {buried, waiting, held - #late, redis.call('XLEN', KEYS[4]), oldest,
  tonumber(counts[1] or 0), tonumber(counts[2] or 0), used}
"""
)

PRUNE = Script(
    _COMMON
    + """
-- KEYS: the room. ARGV: the age before which they go, how many to pass over, how many to look at, ms of a lease ('':
-- nobody holds any), clock or ''. Returns how many were looked at, and how many of them went.
local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. ARGV[1], 'LIMIT', ARGV[2], ARGV[3])
local over, gone = ARGV[4] ~= '' and held_ms(ARGV[4], ARGV[5]), 0
for _, id in ipairs(old) do
  local entry = redis.call('HGET', KEYS[2], id) or '0-0'
  local pending = over and redis.call('XPENDING', KEYS[1], GROUP, entry, entry, 1)[1]
  if not pending or pending[3] >= over then
    remove(1, id, entry)
    gone = gone + 1
  end
end
return {#old, gone}
"""
)
