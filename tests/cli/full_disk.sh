# on a full disk the target goes on, the part stays, can be read, and its name is said
unshare -rm true 2>/dev/null || { echo "no user namespaces to mount a small disk in" >&2; exit 77; }
mkdir disk
export SPARRING_DIR=$PWD/place
unshare -rm bash -c '
	mount -t tmpfs -o size=20k none disk || exit 77
	"$SPARRING" record -o disk/a.spr -- sh -c "
		size() { stat -c %s disk/a.spr.part-*; }
		began=\$(size)
		for bytes in 2000 20000 20000; do
			for name in \$(head -c \$bytes /dev/urandom | od -An -tx1 -w16 | tr -d \" \"); do
				[ -e random-\$name ]
			done
			for i in \$(seq 100); do [ \$(size) = \$began ] || break; sleep 0.1; done
		done; echo the target ends well; exit 6" 2>err
	echo "=> $?"
	sed "s/part-[0-9a-f]*/part-XXXXXXXX/; s/[0-9]\+ records, [0-9]\+ process[es]*/N records, N processes/; s/lost: [0-9]*; //" err
	ls disk | sed "s/part-[0-9a-f]*/part-XXXXXXXX/"
	"$SPARRING" show --json disk/a.spr.part-* 2>/dev/null >json
	echo "=> $?"
	grep -q "random-" json || echo "nothing of it can be read"
	# What cannot even begin is told before the target starts.
	"$SPARRING" record -q --strict -o disk/b.spr -- true 2>/dev/null
	echo "=> $?"'
status=$?
[ $status = 77 ] && echo "cannot mount a small disk" >&2
exit $status
