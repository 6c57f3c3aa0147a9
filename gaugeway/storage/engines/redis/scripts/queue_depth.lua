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
