# without io_uring, membarrier or the time stamp counter the records are the same
record() {
	SPARRING_DISABLE=$1 "$SPARRING" record -q -o a.spr -- sh -c 'for i in 1 2 3; do cat file "missing-$i"; done >/dev/null 2>&1; : >made; (exec ls made)' >/dev/null
	"$SPARRING" show --json --kind file a.spr | sed 's/"time_ns":[0-9]*,"pid":[0-9]*,"tid":[0-9]*,//' >"$2"
	"$SPARRING" verdict a.spr | sed -n 2p
}
echo something >file
record '' usual
[ -s usual ] || echo "nothing was recorded"
for feature in io_uring io_uring_futex membarrier populate punch tsc pidfd futex_waitv \
	io_uring,membarrier,tsc,pidfd,futex_waitv; do
	record $feature "$feature.json"
	cmp usual "$feature.json" && echo "the same without $feature"
done
