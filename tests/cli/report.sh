# one line at the end, on standard error or where it is wanted; nothing of ours on standard output
"$SPARRING" record -- sh -c 'echo out; echo err >&2' >out 2>err
cat out
sed 's/[0-9]\+ records, [0-9]\+ process[es]*/N records, N processes/' err
"$SPARRING" record -q -o quiet.spr -- true 2>&1
"$SPARRING" record --report-fd 5 -o 'with
a line.spr' -- sh -c '[ ! -e /dev/fd/5 ] || echo the target has it' 5>report 2>err
cat err
sed 's/[0-9]\+ records, [0-9]\+ process[es]*/N records, N processes/' report
# Where it cannot be written it is left away.
"$SPARRING" record -- true 2>/dev/full
echo "=> $?"
"$SPARRING" record -- true 2>&-
echo "=> $?"
