#!/bin/sh
# SPDX-License-Identifier: MIT
#
# pairs.sh - the table in model/README.md has the pairs of the table in shm/layout.h, no more and no
# less, and the models it names for a pair cite that pair ([COMMIT]). Prints what differs; exit 1.
set -u
cd "$(dirname "$0")/.." || exit 1

theirs=$(sed -n '/^ \* Memory order/,/^ \*   Hints/s/^ \*   | \([A-Z_]*\) .*/\1/p' shm/layout.h | sort)
ours=$(sed -n 's/^| \([A-Z_]*\) | .*/\1/p' model/README.md | sort)
failed=0
[ -n "$theirs" ] || { echo "shm/layout.h: no table of pairs found"; failed=1; }
for pair in $theirs; do
	echo "$ours" | grep -qx "$pair" || { echo "model/README.md: no row for pair $pair"; failed=1; }
done
for pair in $ours; do
	echo "$theirs" | grep -qx "$pair" || { echo "model/README.md: $pair is no pair of shm/layout.h"; failed=1; }
	for model in $(sed -n "s/^| $pair | \(.*\)/\1/p" model/README.md | grep -o '[a-z]*\.pml'); do
		grep -q "\[$pair\]" "model/$model" || { echo "model/$model: does not cite [$pair]"; failed=1; }
	done
done
exit $failed
