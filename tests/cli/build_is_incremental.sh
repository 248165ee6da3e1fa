# an unchanged tree is not compiled again; a changed header or flag compiles what depends on it
set -u
unset MAKEFLAGS MAKELEVEL MFLAGS
mkdir tree && cp -r "$ROOT/Makefile" "$ROOT/base" "$ROOT/include" tree/ && cd tree || exit 1
build() { make --no-print-directory -j2 O=out CFLAGS="$1" WITH_ZSTD= WITH_URING= out/libsparring.a; }
compiled() { build "$1" | grep -c '^  CC'; }
bad=0
expect() {
	[ "$2" "$3" "$4" ] || { echo "$1: compiled $2 files"; bad=1; }
}

all=$(ls base/*.c | wc -l)
expect 'a fresh tree' "$(compiled -O0)" = "$all"
expect 'nothing changed' "$(compiled -O0)" = 0
touch base/escape.h
expect 'escape.h changed' "$(compiled -O0)" = 1
touch base/atomic.h
n=$(compiled -O0)
expect 'atomic.h changed' "$n" -ge 1
expect 'atomic.h changed' "$n" -lt "$all"
expect 'other flags' "$(compiled -O1)" = "$all"
rm base/escape.c
build -O1 >/dev/null
ar t out/libsparring.a | grep -q escape.o && { echo "a removed source is still in the library"; bad=1; }
exit $bad
