# a library that cannot be preloaded is told before the target starts; the loader never complains
exec 2>&1
record() {
	"$@" record -q -- sh -c 'echo was run'
	echo "=> $?"
}
echo "no library at all:"
cp "$SPARRING" .
record ./sparring
echo "named and missing:"
record env SPARRING_LIB=missing/lib.so "$SPARRING"
echo "named and there, by a relative name:"
mkdir named
cp "$(ls "$BUILD"/lib*/libsparring-files.so "$BUILD"/lib*/*/libsparring-files.so 2>/dev/null |
	grep -v i386 | head -1)" named/lib.so
record env SPARRING_LIB=named/lib.so sh -c 'cd . && exec "$0" "$@"' "$SPARRING"
echo "a path that LD_PRELOAD cannot carry:"
mkdir 'with a space'
cp named/lib.so 'with a space'
record env SPARRING_LIB='with a space/lib.so' "$SPARRING"
echo "somebody's own LD_PRELOAD:"
cp named/lib.so own.so
LD_PRELOAD=$PWD/own.so "$SPARRING" record -q -- sh -c 'echo "${LD_PRELOAD%%:*}"'
ls
