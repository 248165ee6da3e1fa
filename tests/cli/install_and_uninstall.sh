# what make install puts somewhere works from there, also under DESTDIR; make uninstall leaves nothing
set -u
unset MAKEFLAGS MAKELEVEL MFLAGS
bad=0
here=$PWD
[ -x "$BUILD/sparring" ] || { echo "the command is not built here" >&2; exit 77; }
lib=$(cd "$BUILD" && ls -d lib/*-linux-gnu lib64 2>/dev/null | grep -v i386 | head -1)
inst() { (cd "$ROOT" && sh tests/install.sh "$1" "$BUILD" "$2$3" "$3" "$lib" "$version"); }
version=$(basename "$(readlink -f "$BUILD/libsparring.so")" | sed 's/libsparring.so.//')

inst install "" "$here/usr" || bad=1
for f in bin/sparring include/sparring/sparring.h "$lib/libsparring.so" "$lib/libsparring.a" \
	"$lib/libsparring-writer.a" "$lib/pkgconfig/sparring.pc" "$lib/libsparring-files.so"; do
	[ -e "usr/$f" ] || { echo "not installed: $f"; bad=1; }
done

# Against the shared library, as pkg-config would have it.
sed -n 's/^Version: //p' "usr/$lib/pkgconfig/sparring.pc" | grep -qx "$version" || { echo version; bad=1; }
cat >user.c <<'END'
#include <sparring/sparring.h>
int main(void) { return spr_version() == (SPR_VERSION_MAJOR << 16 | SPR_VERSION_MINOR) ? 0 : 1; }
END
cc -Iusr/include -o user user.c -Lusr/"$lib" -lsparring && LD_LIBRARY_PATH=usr/$lib ./user ||
	{ echo "a user's program does not build and run"; bad=1; }

# The installed command finds the installed spy.
usr/bin/sparring record -q -o t.spr -- cat usr/include/sparring/sparring.h >/dev/null ||
	{ echo "record: status $?"; bad=1; }
usr/bin/sparring show --json t.spr | grep -q '"path":"[^"]*/usr/include/sparring/sparring.h"' ||
	{ echo "the installed command recorded nothing"; bad=1; }

inst uninstall "" "$here/usr"
left=$(find usr -type f -o -type l)
[ -z "$left" ] || { echo "left behind: $left"; bad=1; }

inst install "$here/stage" /opt/sparring || bad=1
grep -qx 'prefix=/opt/sparring' "stage/opt/sparring/$lib/pkgconfig/sparring.pc" || { echo prefix; bad=1; }
[ -x stage/opt/sparring/bin/sparring ] || { echo "nothing below DESTDIR"; bad=1; }
exit $bad
