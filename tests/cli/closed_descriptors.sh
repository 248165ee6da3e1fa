# with any of the standard descriptors closed the target has it closed too, and all goes on
for closed in '0<&-' '1>&-' '2>&-' '0<&- 1>&-' '0<&- 1>&- 2>&-'; do
	for fd in 0 1 2; do
		eval "'$SPARRING' record -q -o $fd.spr -- sh -c '
			is=closed; [ ! -e /proc/\$\$/fd/$fd ] || is=open; echo \$is >>$fd.is' $closed"
	done
	echo "$closed: $(cat 0.is 1.is 2.is | tr '\n' ' ')"
	rm ./*.is
	for fd in 0 1 2; do
		"$SPARRING" show --json $fd.spr | grep -q "$fd.is" || echo "not recorded"
	done
done
"$SPARRING" show 0.spr >&- 2>err
echo "=> $?"
cat err
"$SPARRING" show 0.spr >/dev/full 2>err
echo "=> $?"
cat err
