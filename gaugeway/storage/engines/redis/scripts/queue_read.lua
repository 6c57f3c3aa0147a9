-- KEYS: a stream. ARGV: the entry to begin with, how many. Returns lists of entry, id, body.
local found = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])) do
  found[#found + 1] = {entry[1], entry[2][2] or '', entry[2][6] or ''}
end
return found
