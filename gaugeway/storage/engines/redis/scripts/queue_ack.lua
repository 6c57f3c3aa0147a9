-- KEYS: one or more rooms. ARGV: ids.
for room = 1, #KEYS, 3 do
  for _, id in ipairs(ARGV) do
    local entry = redis.call('HGET', KEYS[room + 1], id)
    if entry then remove(room, id, entry) end
  end
end
