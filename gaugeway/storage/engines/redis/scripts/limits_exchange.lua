-- KEYS: the processes, then a bucket each. ARGV: this process, how long one counts (ms), how long a full bucket is kept
-- (ms), then for each bucket its rate a minute, what it holds, what was drawn, and the level to begin with.
-- A bucket expires when it has been full for a while: an unknown bucket counts as full.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local reply = {redis.call('ZCARD', KEYS[1])}
for number = 2, #KEYS do
    local place = 4 + (number - 2) * 4
    local rate, burst = ARGV[place] / 60000, tonumber(ARGV[place + 1])
    local used, level = tonumber(ARGV[place + 2]), tonumber(ARGV[place + 3])
    local known = redis.call('HMGET', KEYS[number], 'level', 'at')
    local at = now
    if known[1] then
        at = math.max(now, tonumber(known[2]))
        level = known[1] + (at - known[2]) * rate
    end
    level = math.min(level, burst) - used
    redis.call('HSET', KEYS[number], 'level', string.format('%.17g', level), 'at', string.format('%.0f', at))
    local full_in = math.min((burst - level) / rate, 1e12)
    redis.call('PEXPIRE', KEYS[number], string.format('%.0f', full_in + ARGV[3]))
    reply[number] = string.format('%.17g', level)
end
return reply
