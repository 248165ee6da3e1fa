# the recording ends with the target; a child that still runs is named and goes on
mkfifo go # the daemon waits in its shell, alone, until the recording has ended
"$SPARRING" record -- sh -c 'setsid sh -c ": >started; read x <go; : >file; cat file; echo \$? >late; sleep 20" &
	echo $! >pid; while [ ! -e started ]; do sleep 0.02; done; exit 4' 2>err
echo "=> $?"
sed 's/[0-9]\+ records, [0-9]\+ process[es]*/N records, N processes/' err
pid=$(cat pid)
kill -0 "$pid" || echo "it waited for the daemon"
"$SPARRING" verdict sparring.spr >verdict
grep -A4 transport verdict | sed "s/pid $pid /pid DAEMON /; /coverage/,\$d; s/[0-9]\+ records/N records/"
"$SPARRING" verdict --json sparring.spr | grep -q "\"left_running_processes\":\[.*{\"pid\":$pid,\"program\":\"[^\"]*sh\"}" ||
	echo "the JSON does not name it"
echo >go
for _ in $(seq 400); do [ -s late ] && break; sleep 0.05; done
echo "the daemon goes on, undisturbed: $(cat late)"
pkill -s "$pid"
