# show chooses by kind, process and time, from a file and from a pipe alike
"$SPARRING" record -q -- sh -c ': >one; sleep 1.2; : >two; (: >three); (exec ./missing) 2>/dev/null; true'
names() { "$SPARRING" show "$@" | grep -o '/\(one\|two\|three\)$' | tr -d '\n'; }
choose() {
	printf '%s: ' "$*"
	names "$@" sparring.spr
	[ "$(names "$@" sparring.spr)" = "$(names "$@" - <sparring.spr)" ] || printf ' (a pipe: something else)'
	echo
}
choose
choose --kind file
choose --kind process
choose --kind file --kind process
choose --from 0.6
choose --to 0.6
choose --from 600ms
choose --from 1ns --to 1
choose --from 60 --to 90
at=$("$SPARRING" show --json sparring.spr | grep '/two"' | sed 's/.*"time_ns":\([0-9]*\).*/\1/')
printf 'from its time_ns: '; names --from "@$at" sparring.spr; echo
printf 'to its time_ns: '; names --to "@$at" sparring.spr; echo
first=$("$SPARRING" show --json sparring.spr | grep '/one"' | sed 's/.*"pid":\([0-9]*\).*/\1/')
child=$("$SPARRING" show --json sparring.spr | grep '/three"' | sed 's/.*"pid":\([0-9]*\).*/\1/')
printf 'of the first: '; names --pid "$first" sparring.spr; echo
printf 'of its child: '; names --pid "$child" sparring.spr; echo
printf 'of both: '; names --pid "$child" --pid "$first" sparring.spr; echo
# A failure is part of its call, or, asked for by its kind, a record of its own.
"$SPARRING" show --kind file sparring.spr | grep -c '/missing *ENOENT$'
"$SPARRING" show --kind result sparring.spr | grep -q 'error=2' && echo 'results apart'
"$SPARRING" show --json --kind nothing sparring.spr 2>&1
echo "=> $?"
"$SPARRING" show --summary --json --kind blind sparring.spr | grep -o '"calls":\[[^]]*\]'
