# below another root, in other namespaces and as somebody else a target runs as without us
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
unshare -m true 2>/dev/null || { echo "no namespaces here" >&2; exit 77; }
mkdir -p root/bin root/tmp
for program in /bin/ls /bin/sh; do
	cp "$(readlink -f $program)" "root/bin/${program##*/}"
	for library in $(ldd "$program" | grep -o '/[^ ]*'); do
		mkdir -p "root${library%/*}" && cp -n "$library" "root$library"
	done
done
chmod -R a+rX . .. ../..
both() {
	echo "$1:"
	shift
	"$@" >bare 2>&1
	bare=$?
	"$SPARRING" record -q -o "$PWD/a.spr" -- "$@" >recorded 2>&1
	status=$?
	[ $status = $bare ] || echo "status $status, not $bare"
	diff bare recorded && echo "  the same words"
	"$SPARRING" show --json --kind blind a.spr | sed 's/.*"reason":"\([^"]*\)".*/  \1/' |
		grep -v 'loader\|libc internals\|raw calls'
}
both "another root" chroot root /bin/sh -c '/bin/ls /; echo "$LD_PRELOAD"; exec /bin/ls /missing'
both "a mount namespace" unshare -m sh -c 'mount -t tmpfs none root/tmp && ls -d root/tmp'
both "a root pivoted to" unshare -m sh -c 'mount --bind root root && cd root &&
	pivot_root . tmp && exec /bin/ls /'
both "a pid namespace" unshare -fp --mount-proc sh -c 'echo $$; ls -d /'
both "a user namespace" unshare -Ur sh -c 'id -u; ls -d /'
both "somebody else" setpriv --reuid=65534 --regid=65534 --clear-groups sh -c 'id -u; ls -d /'
cp root/bin/ls suid && chown 65533 suid && chmod 4755 suid
both "a setuid program" setpriv --reuid=65534 --regid=65534 --clear-groups ./suid -d /
