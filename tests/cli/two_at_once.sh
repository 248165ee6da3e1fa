# two recordings at once in one folder do not disturb each other
for i in 1 2 3 4; do
	"$SPARRING" record -q -- sh -c "sleep 0.3; : >mark-$i; exit $i" &
	pids="$pids $!"
done
for pid in $pids; do
	wait $pid
	echo "=> $?"
done
ls | grep -v mark
"$SPARRING" show --json sparring.spr | grep -o 'mark-[1-4]' | sort -u | wc -l
"$SPARRING" verdict sparring.spr | sed -n 2p
