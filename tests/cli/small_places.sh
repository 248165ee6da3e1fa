# a private place with hardly any room: told before the target starts, or recorded without harm
unshare -rm true 2>/dev/null || { echo "no user namespaces to mount small places in" >&2; exit 77; }
export SPARRING OUT=$PWD
unshare -rm bash -c '
	for size in 4k 64k 1m 3m; do
		mkdir place && mount -t tmpfs -o size=$size,mode=700 none place || exit 77
		SPARRING_DIR=$PWD/place "$SPARRING" record -o $size.spr -- sh -c "
			i=0; while [ \$i -lt 3000 ]; do [ -e a-name-that-is-not-there ]; i=\$((i + 1)); done
			echo \"the target ends well\"; exit 6" >out 2>err
		status=$?
		case $status in
		6) grep -q "the target ends well" out && echo "$size: recorded, or counted" ;;
		125) [ -s out ] && echo "$size: it was run"
			grep -q "^sparring: $PWD/place" err && echo "$size: refused"
			cat err ;;
		*) echo "$size: status $status"; cat err ;;
		esac
		umount place && rmdir place
	done'
status=$?
[ $status = 77 ] && echo "cannot mount small places" >&2
exit $status
