# an output that cannot be written is told before the target starts, with status 73
exec 2>&1
run() {
	"$SPARRING" record "$@" -- sh -c 'echo was run'
	echo "=> $?"
}
mkdir folder
run -o missing/a.spr
run -o folder
run -o folder/
run -o "$(printf '%0300d' 0).spr"
run -o /dev/full
run -o - >&- 2>err
grep sparring: err
rm err
run -o /dev/fd/77
: >in
run -o /dev/fd/0 <in
mkdir -m 500 closed
[ "$(id -u)" = 0 ] || run -o closed/a.spr 2>&1 | grep -v "^=> 73\|^sparring: closed/a.spr: cannot be written: Permission denied"
ls
