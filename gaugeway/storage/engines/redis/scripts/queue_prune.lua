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
