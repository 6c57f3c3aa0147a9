-- KEYS: the room. ARGV: clock or '', ids.
open(KEYS[1])
for place = 2, #ARGV do
  local entry = redis.call('HGET', KEYS[2], ARGV[place])
  -- What nobody holds has no lease: XCLAIM would not give it one.
  if entry and #redis.call('XPENDING', KEYS[1], GROUP, entry, entry, 1) > 0 then
    local claim = {'XCLAIM', KEYS[1], GROUP, ME, 0, entry}
    if ARGV[1] ~= '' then claim[7] = 'TIME'; claim[8] = ARGV[1] end
    claim[#claim + 1] = 'JUSTID'
    redis.call(unpack(claim))
  end
end
