#!/bin/sh
# SPDX-License-Identifier: MIT
# format.sh - reflows the statements and comments that hold a line over 100 columns (rows of
# tables may), and nothing else (make format; needs clang-format). FILE... or all.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- $(git ls-files '*.c' '*.h')
for f; do
	for round in 1 2 3; do
		lines=$(LC_ALL=C awk '{ l = $0; gsub(/\t/, "        ", l); gsub(/[\200-\277]/, "", l) }
			length(l) > 100 && l !~ /^ \*.*\|/ { printf "--lines=%d:%d ", FNR, FNR }' "$f")
		[ -n "$lines" ] || break
		# shellcheck disable=SC2086
		clang-format -i $lines "$f"
	done
done
