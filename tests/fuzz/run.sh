#!/bin/bash
# SPDX-License-Identifier: MIT
# run.sh - builds and runs libFuzzer targets (make fuzz): run.sh BUILD SECONDS [TARGET...]
# A target is tests/fuzz/NAME.c; what it needs besides the library stands in a line
# "fuzz: also FILE..." of its head. Seeds lie in tests/fuzz/corpus/NAME/, what was found goes to
# BUILD/NAME/corpus; an input that fails is left as BUILD/NAME/crash-*.
# FUZZ_FLAGS, FUZZ_LIBS: as the library is built.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1 seconds=$2
shift 2
if ! command -v clang >/dev/null; then
	echo "fuzz: needs clang; make deps-all installs it" >&2
	exit 1
fi
if [ $# = 0 ]; then
	for f in tests/fuzz/*.c; do
		[ -e "$f" ] && grep -q LLVMFuzzerTestOneInput "$f" && set -- "$@" "$(basename "$f" .c)"
	done
fi
[ $# -gt 0 ] || { echo "no fuzz targets in tests/fuzz" >&2; exit 1; }

sanitize='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -g -O1'
flags="$(echo "$FUZZ_FLAGS" | sed 's/-Werror//') -DSPR_FUZZ $sanitize"
# The library once for all targets; what is older than any source is compiled again.
for src in base/*.c shm/*.c transport/*.c collector/*.c encoder/*.c; do
	[ -e "$src" ] || continue
	o=$build/lib/${src%.c}.o
	if [ ! -e "$o" ] || [ -n "$(find base shm transport collector encoder include -name '*.[ch]' -newer "$o" -print -quit)" ]; then
		mkdir -p "$(dirname "$o")"
		echo "clang $flags -c -o $o $src"
	fi
done | xargs -r -d '\n' -P 2 -I{} sh -c '{}' || exit 1
objects=()
for src in base/*.c shm/*.c transport/*.c collector/*.c encoder/*.c; do
	[ -e "$src" ] && objects+=("$build/lib/${src%.c}.o")
done

bad=0
for target; do
	src=tests/fuzz/$target.c out=$build/$target
	[ -e "$src" ] || { echo "no such fuzz target: $src" >&2; exit 1; }
	mkdir -p "$out/corpus"
	also=$(sed -n 's/.*fuzz: also \([^*]*\).*/\1/p' "$src")
	# shellcheck disable=SC2086
	clang $flags -fsanitize=fuzzer -o "$out/fuzz" "$src" $also "${objects[@]}" $FUZZ_LIBS || exit 1
	seeds=tests/fuzz/corpus/$target
	[ -d "$seeds" ] || seeds=
	# shellcheck disable=SC2086
	if "$out/fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="$out/" "$out/corpus" $seeds >"$out/log" 2>&1; then
		echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$out/log") inputs, none failed"
	else
		tail -40 "$out/log"
		echo "$target: FAILED, input in $(ls "$out"/crash-* "$out"/timeout-* "$out"/oom-* "$out"/leak-* 2>/dev/null | head -1)"
		bad=1
	fi
done
exit $bad
