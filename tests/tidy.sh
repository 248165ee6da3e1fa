#!/bin/sh
# SPDX-License-Identifier: MIT
#
# tidy.sh - the rules a compiler can't check. Prints file:line: message; exit 1 if any.
#	tests/tidy.sh [TREE]
#
#  layers   a quoted include is "folder/file.h", and LAYERS lets this folder include that one
#  shape    70 lines a function, 100 columns, no trailing blanks, tabs indent, SPDX line, a sentence
#  atomics  only base/atomic.h knows <stdatomic.h>; an ordered access names its pair in brackets on
#           the same line ([COMMIT]); each pair that is cited has a release side and an acquire
#           side, and stands in a table: a comment line " *   | COMMIT | ..." or [COMMIT] in the rest of
#           a comment behind the word "Pairs". A full fence or a kernel's barrier counts as both sides.
#  words    names that style forbids
set -eu
cd "${1:-$(dirname "$0")/..}"
folders=
for f in include base shm bpf transport encoder collector spy cli bench tests examples; do
	[ -d "$f" ] && folders="$folders $f"
done
# shellcheck disable=SC2086
src=$(find $folders -name '*.[ch]' | sort)
product=$(echo "$src" | grep -v '^tests/' || true)

layers() {
	# shellcheck disable=SC2086
	awk 'FNR == NR { if ($0 !~ /^#/ && NF) { f = $1; sub(":", "", f); ok[f, f] = 1
	                   for (i = 2; i <= NF; i++) ok[f, $i] = 1 } ; next }
	     /^[ \t]*#[ \t]*include/ && /"|<sparring\// {
	         match($0, /["<][^">]*/); to = substr($0, RSTART + 1, RLENGTH - 1)
	         from = FILENAME; sub("/.*", "", from)
	         if (from == "examples") from = "tests"
	         if (to ~ /^sparring\//) to = "include/" to
	         if (to !~ /\//) { print FILENAME ":" FNR ": include from the root: \"" from "/" to "\""; next }
	         sub("/.*", "", to)
	         if (!((from, to) in ok))
	             print FILENAME ":" FNR ": " from "/ may not include " to "/ (see LAYERS)" }' \
	    LAYERS $src
}

shape() {
	# A function is what stands between { and } in column 0, its name on the line before.
	# shellcheck disable=SC2086
	awk 'FNR == 1 { start = 0; if (index($0, "SPDX-License-Identifier: MIT") == 0)
	                 print FILENAME ":1: no SPDX line" }
	     FNR == 2 && FILENAME !~ /^examples/ && $0 !~ /^\/\*/ { print FILENAME ":2: no sentence saying what this file is" }
	     /^\{/ { start = FNR }
	     /^\}/ && start { if (FNR - start + 1 > 72)
	             print FILENAME ":" start ": a function of " FNR - start - 1 " lines (70)"
	         start = 0 }
	     /[ \t]$/ { print FILENAME ":" FNR ": blanks at the end of the line" }
	     /^[ \t]*\/\// { print FILENAME ":" FNR ": // comment" }
	     { l = $0; gsub(/\t/, "        ", l); gsub(/[\200-\277]/, "", l)
	       if (length(l) > 100 && l !~ /^ \*.*\|/)
	           print FILENAME ":" FNR ": " length(l) " columns (100)" }' $src
}

atomics() {
	# shellcheck disable=SC2086
	grep -nE 'stdatomic\.h|\batomic_(load|store|exchange|compare|fetch|thread|signal)|__atomic_|__sync_' \
		$src | grep -v '^base/atomic\.h:' | sed 's/:.*//; s/$/: atomics only by base\/atomic.h/' | sort -u
	# shellcheck disable=SC2086
	awk 'function pairs(l, set, where,   p) { # out of the comments of a statement
	         gsub(/[^\/\*]*\/\*/, "\001", l); if (l !~ /\001/) return
	         while (match(l, /\[[A-Z][A-Z_]+\]/)) {
	             p = substr(l, RSTART + 1, RLENGTH - 2); l = substr(l, RSTART + RLENGTH)
	             set[p] = where } }
	     FNR == 1 { tabled = 0; stmt = "" }
	     # Tables stand in comments: | NAME | or, below a line that says "Pairs", NAME in capitals.
	     /^ \*.*[Pp]airs?/ { tabled = 1 }
	     /^ \*\/|^[^ ]/ { tabled = 0 }
	     /^ \*[ \t]+\|? *\[?[A-Z][A-Z_]+\]?[ \t]+[|a-z]/ && (tabled || /\|/) {
	         l = $0; match(l, /[A-Z][A-Z_]+/); table[substr(l, RSTART, RLENGTH)] = 1 }
	     tabled { l = $0; while (match(l, /\[[A-Z][A-Z_]+\]/)) {
	         table[substr(l, RSTART + 1, RLENGTH - 2)] = 1; l = substr(l, RSTART + RLENGTH) } }
	     FILENAME == "base/atomic.h" { next }
	     /^[ \t]*\*|^[ \t]*\/\*/ && !/spr_/ { next }
	     # A statement may go over lines: looked at as a whole, to its end and the comment there.
	     { if (stmt == "") where = FILENAME ":" FNR
	       stmt = stmt " " $0
	       if ($0 !~ /[;{}][ \t]*(\/\*.*)?(\\)?$|\*\/$|^#|^$/ && length(stmt) < 600) next
	       l = stmt; stmt = ""
	       has = l ~ /\[[A-Z][A-Z_]+\]/
	       release = l ~ /spr_(store_release|(cas|add|or|and|exchange|sub)_(acq_rel|release)|full_fence)\(/
	       acquire = l ~ /spr_(load_acquire|(cas|add|or|and|exchange|sub)_(acq_rel|acquire)|full_fence)\(/
	       # what pairs without an atomic verb: a barrier by the kernel, a lock, a compiler barrier
	       other = l ~ /spr_compiler_barrier\(|membarrier|lock|spr_(load|store|or|and|add|cas|exchange)_relaxed\(/
	       # a fence stands between two accesses that name theirs
	       if ((release || acquire) && !has && l !~ /full_fence/ && l !~ /#[ \t]*define/)
	           print where ": an ordered access without its pair, as in [COMMIT]"
	       if (has) {
	           if (release) pairs(l, st, where)
	           if (acquire) pairs(l, ld, where)
	           if (other && !release && !acquire) { pairs(l, st2, where); pairs(l, ld2, where) }
	           if (release || acquire || other) pairs(l, cited, where) } }
	     END { for (p in cited) {
	               if (!(p in table)) print cited[p] ": pair " p " stands in no table"
	               if ((p in st) && !(p in ld) && !(p in ld2)) print st[p] ": pair " p " has no acquire side"
	               if ((p in ld) && !(p in st) && !(p in st2)) print ld[p] ": pair " p " has no release side" } }' \
	    $src
}

words() {
	# segment_free: FREE is a state of the protocol.
	# shellcheck disable=SC2086
	grep -nE '^[a-z].*\b(spr_)?[a-z_]*(_free|_destroy|_new|_handle|_process|_do)\(' $product |
		grep -vE '((segment|orphans)_free|spr_kind_process)\(' |
		sed 's/\(:[0-9]*:\).*/\1 a verb that style.md does not use (free, destroy, new, handle, process, do)/'
	# shellcheck disable=SC2086
	grep -nE '\b(struct|enum) spr_[a-z_]*(message|packet)\b' $product |
		sed 's/\(:[0-9]*:\).*/\1 a record is called record/'
}

found=$({ layers; shape; atomics; words; } | sort -t: -k1,1 -k2,2n)
[ -z "$found" ] || { echo "$found" >&2; exit 1; }
