-- KEYS: the room. ARGV: entries that make no sense.
for _, name in ipairs(ARGV) do
  local entry = redis.call('XRANGE', KEYS[1], name, name)[1]
  if entry then remove(1, entry[2][2] or '', name) end
end
