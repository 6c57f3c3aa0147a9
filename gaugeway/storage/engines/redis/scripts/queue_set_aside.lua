-- KEYS: the room, the room of dead letters, the counts. ARGV: the most dead letters, then entry, attempts, reason of
-- each.
for i = 2, #ARGV, 3 do
  set_aside(1, 4, KEYS[7], ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[1]))
end
