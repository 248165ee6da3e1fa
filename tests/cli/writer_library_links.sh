# libsparring-writer.a links into a shared object and a static program, shows nothing, and refuses no libc
set -u
cat >sender.c <<'END'
#include <sparring/sparring.h>
#include <stdio.h>
int send_one(const char *address);
int send_one(const char *address)
{
	spr_producer *p;
	const int err = spr_attach(&p, address);

	if (err)
		return err;
	return spr_write(spr_writer_here(p), 0, "x", 1);
}
#ifdef PROGRAM
int main(void)
{
	const int err = send_one("ring:/nowhere/at/all");

	printf("%s, %s\n", err == -2 ? "-ENOENT" : "another error", spr_error_text()[0] ? "said" : "silent");
	return 0;
}
#endif
END
writer=$BUILD/libsparring-writer.a
bad=0
try() { # name, command
	local name=$1
	shift
	"$@" >said 2>&1 || { echo "$name:"; head -20 said; bad=1; }
}

# A sanitizer's build has no writer library of its own worth linking: it is never instrumented.
try 'shared object' cc -O2 -fPIC -shared -Wl,-z,defs -I"$ROOT/include" -o sender.so sender.c "$writer"
shown=$(nm -D --defined-only sender.so 2>/dev/null | awk '{ print $3 }' | tr '\n' ' ')
[ "$shown" = 'send_one ' ] || { echo "the object shows: $shown"; bad=1; }
needed=$(readelf -d sender.so 2>/dev/null | grep NEEDED | grep -v 'libc\.so')
[ -z "$needed" ] || { echo "the object needs: $needed"; bad=1; }
readelf -d sender.so 2>/dev/null | grep -q TEXTREL && { echo 'text relocations'; bad=1; }

for kind in -static -pie; do
	try "program $kind" cc -O2 $kind -DPROGRAM -I"$ROOT/include" -o program sender.c "$writer" -pthread
	[ "$(./program)" = '-ENOENT, said' ] || { echo "program $kind says: $(./program)"; bad=1; }
done
if command -v musl-gcc >/dev/null && [ -e "$BUILD/musl/libsparring-writer.a" ]; then
	try 'musl program' musl-gcc -O2 -static -DPROGRAM -I"$ROOT/include" -o program sender.c \
		"$BUILD/musl/libsparring-writer.a"
	[ "$(./program)" = '-ENOENT, said' ] || { echo "musl program says: $(./program)"; bad=1; }
fi
exit $bad
