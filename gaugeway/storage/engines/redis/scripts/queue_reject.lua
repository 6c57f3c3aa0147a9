-- KEYS: the room, the room of dead letters, the counts. ARGV: the most dead letters, id, reason.
local entry = redis.call('HGET', KEYS[2], ARGV[2])
if entry then
  open(KEYS[1])
  local pending = redis.call('XPENDING', KEYS[1], GROUP, entry, entry, 1)[1]
  set_aside(1, 4, KEYS[7], entry, pending and pending[4] or 0, ARGV[3], tonumber(ARGV[1]))
end
