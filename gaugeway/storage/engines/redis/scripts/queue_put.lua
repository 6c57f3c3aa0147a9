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
