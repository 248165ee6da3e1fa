# a signal sent to us alone is passed on, once, and the trace is finished
wait_for() { for _ in $(seq 200); do [ -e "$1" ] && return; sleep 0.02; done; echo "no $1"; }
for signal in INT TERM HUP QUIT USR1 ALRM WINCH; do
	rm -f ready got
	# The shell ignores INT and QUIT for what it starts in the background; env gives them back.
	env --default-signal=INT,QUIT "$SPARRING" record -q -o "$signal.spr" -- sh -c '
		trap "echo '$signal' >>got" '$signal'
		: >ready
		while [ ! -e got ]; do sleep 0.02; done; sleep 0.1; exit 7' &
	wait_for ready
	kill -$signal $!
	wait $!
	echo "=> $? after $(tr '\n' ' ' <got)"
	"$SPARRING" show --json "$signal.spr" | grep -q ready || echo "nothing recorded"
done
# One that kills the target is our status too; and the trace is whole.
rm -f ready
"$SPARRING" record -q -- sh -c ': >ready; exec sleep 100' &
wait_for ready
kill $!
wait $!
echo "=> $?"
"$SPARRING" verdict sparring.spr | sed -n 1,2p
# One to the whole group reaches the target by itself, and not once more.
rm -f ready got
setsid env --default-signal=INT,QUIT "$SPARRING" record -q -- sh -c '
	trap "echo TERM >>got" TERM
	: >ready
	while [ ! -e got ]; do sleep 0.02; done; sleep 0.3; exit 8' &
wait_for ready
kill -TERM -- -$!
wait $!
echo "=> $? after $(tr '\n' ' ' <got)"
# What the target sends to its parent is not meant for itself.
"$SPARRING" record -q -- sh -c 'kill -TERM $PPID; sleep 0.1; exit 5'
echo "=> $?"
# The target stops and goes on without us having a say.
"$SPARRING" record -q -- sh -c '(sleep 0.2; kill -CONT $$) & kill -STOP $$; exit 6'
echo "=> $?"
ls | grep part-
true
