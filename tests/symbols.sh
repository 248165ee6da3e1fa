#!/bin/sh
# SPDX-License-Identifier: MIT
# symbols.sh - what the built libraries export and need, against the lists. symbols.sh BUILD
#	libsparring.so        exports include/symbols.txt, all of it and nothing else
#	libsparring-writer.a  offers include/writer-symbols.txt, hidden; needs only what is allowed
#	                      below; at most 64 KiB of text; position independent
set -eu
build=$1
bad=0
# What the sender may take from libc: pure functions, which have no state and which a compiler may
# call by itself; getauxval; and the key whose destructor tells a thread's end.
allowed='_GLOBAL_OFFSET_TABLE_ strlen strnlen strcmp strncmp memcpy memmove memset memcmp getauxval
	pthread_key_create pthread_key_delete pthread_setspecific pthread_getspecific environ'

list() { sed '/^#/d; /^$/d' "$1" | sort; }
differ() { # title, wanted, found
	if ! diff "$2" "$3" >"$t/diff"; then
		echo "symbols: $1 (< listed only, > built only):"
		grep '^[<>]' "$t/diff"
		bad=1
	fi
}
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT

list include/symbols.txt >"$t/want"
# A declaration may go over lines: up to its semicolon, less its arguments.
sed -n '/^SPR_API/,/;/p' include/sparring/*.h | sed 's|/\*.*||' | tr '\n' ' ' | tr ';' '\n' |
	grep SPR_API | sed 's/^.*SPR_API//; s/[[(].*//; s/.*\(spr_[a-z0-9_]*\) *$/\1/' | sort >"$t/header"
differ "include/symbols.txt and the public header" "$t/want" "$t/header"

nm -D --defined-only "$build/libsparring.so" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' |
	sort >"$t/found"
differ "libsparring.so and include/symbols.txt" "$t/want" "$t/found"

writer=$build/libsparring-writer.a
list include/writer-symbols.txt >"$t/want"
nm --defined-only --extern-only "$writer" | awk 'NF == 3 { print $3 }' | sort >"$t/found"
differ "libsparring-writer.a and include/writer-symbols.txt" "$t/want" "$t/found"
if readelf -sW "$writer" | awk '$5 == "GLOBAL" && $7 != "UND" && $6 != "HIDDEN" { print $8 }' |
	grep . >"$t/visible"; then
	echo "symbols: not hidden in libsparring-writer.a: $(tr '\n' ' ' <"$t/visible")"
	bad=1
fi
for need in $(nm -u "$writer" | awk '{ print $NF }' | grep -v '^$' | grep -v ':$'); do
	case " $(echo $allowed) " in
	*" $need "*) ;;
	*) echo "symbols: libsparring-writer.a may not need $need"; bad=1 ;;
	esac
done
if readelf -rW "$writer" | sed '/^Relocation section .\.rela\.debug/,/^$/d' |
	grep -E 'R_X86_64_(TLSGD|TLSLD|32S?) |R_AARCH64_TLSGD' >"$t/tls"; then
	echo "symbols: libsparring-writer.a is not position independent, or has dynamic TLS:"
	head -5 "$t/tls"
	bad=1
fi
text=$(size "$writer" | awk 'NR > 1 { n += $1 } END { print n }')
if [ "$text" -gt 65536 ]; then
	echo "symbols: libsparring-writer.a has $text bytes of text, more than 65536"
	bad=1
fi
exit $bad
