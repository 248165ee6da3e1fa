#!/bin/sh
# SPDX-License-Identifier: MIT
# lint.sh - headers stand alone; clang-tidy over the product (checks in .clang-tidy).
#	tests/lint.sh 'COMPILER AND FLAGS'
set -u
compile=$1
flags=${compile#* }
bad=0
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

for h in $(find include base shm bpf transport encoder collector spy cli bench -name '*.h' 2>/dev/null); do
	[ "$h" = spy/exports.h ] && continue # text for the linker
	case $h in include/*) name="<${h#include/}>" ;; *) name="\"$h\"" ;; esac
	if ! printf '#include %s\n' "$name" | $compile -x c -fsyntax-only - 2>"$log/header"; then
		echo "$h: does not stand alone:"
		head -5 "$log/header"
		bad=1
	fi
done
# C++ users include the public header, too.
if command -v c++ >/dev/null; then
	for h in include/sparring/*.h; do
		printf '#include <%s>\n' "${h#include/}" | c++ -std=c++11 -Wall -Wextra -Werror -Iinclude \
			-x c++ -fsyntax-only - || { echo "$h: not for C++"; bad=1; }
	done
fi

tidy=$(command -v clang-tidy || command -v clang-tidy-14 || true)
if [ -z "$tidy" ]; then
	echo "left out: clang-tidy (make deps-all installs it)"
	exit $bad
fi
flags=$(printf '%s\n' $flags | grep -vE '^-(MMD|MP|Werror)$' | tr '\n' ' ')
# shellcheck disable=SC2086
find base shm bpf transport encoder collector spy cli -name '*.c' ! -name '*.bpf.c' 2>/dev/null | sort |
	xargs -P "$(nproc)" -n 4 sh -c '
		tidy=$1 flags=$2 log=$3; shift 3
		"$tidy" --quiet "$@" -- $flags >"$log/$$.out" 2>"$log/$$.err" ||
			grep -E "(error|warning):" "$log/$$.out" || tail -5 "$log/$$.err"
	' sh "$tidy" "$flags" "$log" >"$log/all"
if [ -s "$log/all" ]; then
	cat "$log/all"
	bad=1
fi
exit $bad
