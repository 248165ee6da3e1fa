# what ran unseen is named by pid and program, and an ordinary child gives no blind spot
# Printed: what a recording's verdict has beside the three that hooks always have.
record() {
	echo "$1:"
	shift
	"$SPARRING" record -q -o "$PWD/a.spr" -- "$@" || echo "=> $?"
	"$SPARRING" show --json --kind blind a.spr | grep -v '"reason":"\(loader\|libc internals\|raw calls\)"' |
		sed 's/"time_ns":[0-9]*,//; s/"pid":[0-9]*/"pid":N/; s/"tid":[0-9]*,//; s/^/  /'
}
static=$BUILD/tests/targets/files_static
[ -x "$static" ] || { echo "tests/targets is not built" >&2; exit 77; }
record "dynamic children" sh -c 'ls >/dev/null; env -i ls >/dev/null; (cd / && ls | cat >/dev/null); sh -c true'
record "a static program" sh -c '"$0" list / >/dev/null 2>&1; true' "$static"
record "a static program as the first" "$static" >/dev/null 2>&1
"$SPARRING" show --json --kind blind a.spr | grep -c '"reason":"static"'
record "no room for the ring" sh -c 'ulimit -v 8192; ls -d . >/dev/null'
record "three descriptors" sh -c 'ulimit -n 3; exec true'
record "a script, an interpreter" sh -c 'printf "#!/bin/sh\ntrue\n" >s; chmod +x s; ./s; exec ./s'
record "a failed exec" sh -c 'exec ./missing' 2>/dev/null
