#!/bin/sh
# SPDX-License-Identifier: MIT
# demo.sh - make demo: records a real compile and shows what was seen. demo.sh BUILD
set -eu
build=$1
trace=$build/demo.spr
rm -rf "$build/demo" "$trace"

echo "== recording a compile of this library: make O=$build/demo $build/demo/libsparring.a"
"$build/sparring" record -o "$trace" -- make -s O="$build/demo" "$build/demo/libsparring.a"
echo
echo "== what was seen (sparring show --summary $trace)"
"$build/sparring" show --summary "$trace"
echo
echo "== ten of the records (out of sparring show $trace)"
"$build/sparring" show "$trace" 2>/dev/null | grep -E ' (open|mkdir|unlink|execve|posix_spawn) ' |
	awk 'NR % 901 == 0 { print substr($0, 1, 160) }' | head -10
echo
echo "== what it is worth (sparring verdict $trace)"
status=0
"$build/sparring" verdict "$trace" || status=$?
echo "(exit status $status: 0 complete, 1 incomplete, 2 cut or damaged)"
[ "$status" -le 1 ]
