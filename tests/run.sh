#!/bin/bash
# SPDX-License-Identifier: MIT
#
# run.sh - runs the suites, two at a time, and says how many cases passed, failed, were skipped.
#
#	tests/run.sh [-o BUILD] [-s SANITIZER] [-1] [NAME...]
#
# BUILD/tests/*_test are cmocka programs, tests/cli/*.sh command lines (see cli_one below). NAME
# (ring_writer_test, cli/show_empty) runs these alone. -s leaves out what tests/sanitizers.txt
# lists for that sanitizer. As root everything runs a second time as an ordinary user; -1: not.
# Environment: JOBS (2), TEST_TIMEOUT (seconds a unit may take, 180), V=1 (all output), EMULATOR (in
# front of each program).
set -u
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)

# One golden test: tests/cli/NAME.sh runs in an empty folder of its own with these in its
# environment: SPARRING (the command), BUILD, TESTS (tests/cli). What it wrote must be NAME.stdout and
# NAME.stderr (where such a file exists), its exit status NAME.status (0 without the file; 77 skips,
# its last line on stderr is the reason). Before comparing, the test's own folder becomes DIR, the
# build folder BUILD, the tree ROOT, "pid 123" becomes "pid N"; NAME.sed (if any) is applied last.
cli_one() {
	local name=$1 dir=$2 want=0 status sentence ok=1
	local base=$root/tests/cli/$name
	sentence=$(sed -n '/^# SPDX/d; /^#!/d; s/^# *//p' "$base.sh" | head -1)
	mkdir -p "$dir/work" && cd "$dir/work" || return 1
	SPARRING=$BUILD/sparring TESTS=$root/tests/cli BUILD=$BUILD ROOT=$root \
		timeout -k 5 "$TEST_TIMEOUT" bash "$base.sh" \
		>"$dir/stdout" 2>"$dir/stderr" </dev/null
	status=$?
	echo "1..1"
	if [ $status = 77 ]; then
		echo "# skipped, $(tail -1 "$dir/stderr")"
		echo "not ok 1 # SKIP $name: $sentence"
		return
	fi
	[ -e "$base.status" ] && want=$(cat "$base.status")
	[ "$status" = "$want" ] || { ok=0; echo "# exit status $status, not $want"; }
	for stream in stdout stderr; do
		[ -e "$base.$stream" ] || continue
		sed -e "s|$dir/work|DIR|g; s|$BUILD|BUILD|g; s|$root|ROOT|g; s/\bpid [0-9]\+/pid N/g" \
			"$dir/$stream" >"$dir/$stream.plain"
		[ -e "$base.sed" ] && sed -i -E -f "$base.sed" "$dir/$stream.plain"
		diff -u --label "expected $stream" --label "$stream" "$base.$stream" \
			"$dir/$stream.plain" >"$dir/diff" || { ok=0; sed 's/^/# /' "$dir/diff"; }
	done
	if [ $ok = 1 ]; then
		echo "ok 1 - $name: $sentence"
	else
		for stream in stdout stderr; do
			[ -e "$base.$stream" ] || sed "s/^/# $stream: /" "$dir/$stream" | tail -50
		done
		echo "not ok 1 - $name: $sentence"
	fi
}

# One unit, in a folder and with a TMPDIR of its own; prints its report and leaves "passed failed
# skipped" in OUT/NAME.count.
one() {
	local unit=$1 name=${1#cli/} dir out status start end
	dir=$(mktemp -d "$OUT/dir.XXXXXX") || exit 1
	out=$OUT/${unit//\//_}
	mkdir -p "$dir/tmp" "$dir/home"
	export TMPDIR=$dir/tmp HOME=$dir/home
	start=$(date +%s%N)
	case $unit in
	cli/*) cli_one "$name" "$dir" >"$out.log" 2>&1; status=$? ;;
	*)
		cd "$root" || exit 1
		CMOCKA_MESSAGE_OUTPUT=TAP timeout -k 5 "$TEST_TIMEOUT" ${EMULATOR:-} "$BUILD/tests/$unit" \
			>"$out.log" 2>"$out.err" </dev/null
		status=$?
		[ -s "$out.err" ] && sed 's/^/# stderr: /' "$out.err" >>"$out.log"
		;;
	esac
	end=$(date +%s%N)
	awk -v unit="$unit" -v status=$status -v ms=$(((end - start) / 1000000)) -v count="$out.count" \
	    -v verbose="${V:-}" -v brief="${BRIEF:-}" '
		function sentence(s) { gsub(/_/, " ", s); return s }
		{ all = all "    " $0 "\n" }
		/^1\.\.[0-9]+/ { planned += substr($0, 4) + 0 }
		/^ok [0-9]+/ { passed++; sub(/^ok [0-9]+ - /, ""); 
			if (!brief) text = text "  ok    " sentence($0) "\n" }
		/^not ok [0-9]+/ {
			if (/# SKIP/) { skipped++; sub(/.*# SKIP /, ""); text = text "  skip  " sentence($0) (why ? " (" why ")" : "") "\n" }
			else { failed++; sub(/^not ok [0-9]+ - /, ""); text = text "  FAIL  " sentence($0) "\n" }
			why = "" }
		/skipped, / { why = $0; sub(/.*skipped, /, "", why) }
		END {
			seen = passed + failed + skipped
			if (seen < planned) { failed += planned - seen
				text = text "  FAIL  " planned - seen " cases never ended\n" }
			if (status && !failed) { failed++; text = text "  FAIL  exit status " status "\n" }
			if (!seen && !failed) { failed++; text = text "  FAIL  no case was run\n" }
			printf "%s (%.1f s)\n%s", unit, ms / 1000, text
			if (failed || verbose) printf "%s", all
			if (status == 124 || status == 137) print "    killed after its time was up"
			print passed + 0, failed + 0, skipped + 0 >count
		}' "$out.log" >"$out.report"
	flock "$OUT/lock" cat "$out.report"
	chmod -R u+rwx "$dir" 2>/dev/null
	rm -rf "$dir"
}

suite() {
	rm -f "$OUT"/*.count
	printf '%s\n' "${units[@]}" | xargs -P "${JOBS:-2}" -I{} bash "$root/tests/run.sh" --one {}
}

export TEST_TIMEOUT=${TEST_TIMEOUT:-180}
if [ "${1:-}" = --one ]; then
	one "$2"
	exit 0
fi
if [ "${1:-}" = --suite ]; then # as the ordinary user: the units follow
	shift
	units=("$@")
	suite
	exit 0
fi

BUILD=build sanitizer='' twice=1
while getopts o:s:1 flag; do
	case $flag in
	o) BUILD=$OPTARG ;;
	s) sanitizer=$OPTARG ;;
	1) twice= ;;
	*) exit 64 ;;
	esac
done
shift $((OPTIND - 1))
case $BUILD in /*) ;; *) BUILD=$root/$BUILD ;; esac
export BUILD

units=()
if [ $# -gt 0 ]; then
	units=("$@")
else
	for t in "$BUILD"/tests/*_test; do
		[ -x "$t" ] && [ -e "$root/tests/$(basename "$t").c" ] && units+=("$(basename "$t")")
	done
	if [ -z "$sanitizer" ]; then
		for t in "$root"/tests/cli/*.sh; do
			[ -e "$t" ] && units+=("cli/$(basename "$t" .sh)")
		done
	fi
fi
left_out=0
if [ -n "$sanitizer" ]; then
	while read -r who unit why; do
		[ "$who" = "$sanitizer" ] || continue
		for i in "${!units[@]}"; do
			if [ "${units[$i]}" = "$unit" ]; then
				unset "units[$i]"
				echo "$unit: not under $who: $why"
				left_out=$((left_out + 1))
			fi
		done
	done < <(grep -v '^#' "$root/tests/sanitizers.txt")
	units=("${units[@]}")
fi
[ ${#units[@]} -gt 0 ] || { echo "no tests in $BUILD/tests: make test builds them" >&2; exit 1; }

top=$(mktemp -d "${TMPDIR:-/tmp}/sparring-run.XXXXXX") || exit 1
trap 'chmod -R u+rwx "$top" 2>/dev/null; rm -rf "$top"' EXIT
chmod 755 "$top"
export OUT=$top/first
mkdir "$OUT"
suite
counts=$(cat "$OUT"/*.count 2>/dev/null)
rounds=1

# The second time as nobody. Where he cannot read the tree, he gets a copy.
if [ -n "$twice" ] && [ "$(id -u)" = 0 ]; then
	user=(setpriv --reuid=65534 --regid=65534 --clear-groups env -u SUDO_UID)
	if ! "${user[@]}" test -x "$BUILD/tests" -a -r "$root/tests/run.sh"; then
		mkdir "$top/tree"
		tar -C "$root" --exclude=.git --exclude='*.o' -cf - . | tar -C "$top/tree" -xf -
		case $BUILD in "$root"/*) BUILD=$top/tree/${BUILD#"$root"/} ;; esac
		chmod -R a+rX "$top/tree"
		root=$top/tree
	fi
	export OUT=$top/second
	mkdir "$OUT" && chown 65534:65534 "$OUT"
	echo "again as an ordinary user; cases that pass are not named again"
	(cd / && BRIEF=1 "${user[@]}" bash "$root/tests/run.sh" --suite "${units[@]}")
	counts+=$'\n'$(cat "$OUT"/*.count 2>/dev/null)
	rounds=2
fi
echo "$counts" | awk -v want=$((${#units[@]} * rounds)) -v left_out=$left_out '
	NF == 3 { passed += $1; failed += $2; skipped += $3; n++ }
	END {
		if (n < want) failed += want - n
		printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped + left_out
		exit failed > 0
	}'
