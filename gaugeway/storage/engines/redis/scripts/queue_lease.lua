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
