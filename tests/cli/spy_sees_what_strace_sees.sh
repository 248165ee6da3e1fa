# SPDX-License-Identifier: MIT
# All path calls that a program makes are in the trace, and none that strace has not seen
command -v strace >/dev/null && command -v python3 >/dev/null ||
	{ echo "strace or python3 is not installed" >&2; exit 77; }
cat >recorder <<END
#!/bin/sh
"$SPARRING" record -q -o "\$PWD.spr" -- "\$@" >/dev/null 2>&1
"$SPARRING" show --json "\$PWD.spr"
END
chmod +x recorder
recorder=$PWD/recorder

compare() { # NAME COMMAND...: where the tool is missing there is nothing to compare
	local name=$1 status
	shift
	if ! command -v "$1" >/dev/null; then
		echo "$name: missing 0, extra 0"
		return
	fi
	set -- "$(command -v "$1")" "${@:2}"
	python3 "$TESTS/../compare_strace.py" "$recorder" -- "$@" >"../$name.txt" 2>&1
	status=$?
	[ $status = 77 ] && { cat "../$name.txt" >&2; exit 77; }
	echo "$name: $(tail -1 "../$name.txt")"
	[ $status = 0 ] || cat "../$name.txt" >&2
}

mkdir project && cd project
printf '#include "h.h"\nint main(void) { return f(1); }\n' >main.c
printf '#include "h.h"\n#include <stdio.h>\nint f(int x) { return printf("%%d", x) > 9; }\n' >f.c
echo 'int f(int x);' >h.h
# A compiler makes thousands of calls, and strace walks the stack of each: that is for the long run.
if [ -n "${SPARRING_TEST_LONG:-}" ]; then
	printf 'prog: main.o f.o\n\t$(CC) -o $@ main.o f.o\nmain.o f.o: h.h\n' >Makefile
else
	printf 'prog: main.c f.c\n\tcat $^ >$@\n\tgrep -c main $@\nmain.c f.c: h.h\n' >Makefile
fi
compare make make -j2
if command -v git >/dev/null; then
	export GIT_CONFIG_GLOBAL=/dev/null
	git init -q . 2>/dev/null
fi
compare git git status
compare python3 /usr/bin/python3 -c 'import json'
compare shell /bin/sh -c 'cd / && cat /etc/hostname nothing; ls -l /etc/*.conf'
