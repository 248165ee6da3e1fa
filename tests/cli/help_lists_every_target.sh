# `make help` has a sentence for every target that the README or CI names
set -u
unset MAKEFLAGS MAKELEVEL MFLAGS
cd "$ROOT" || exit 1
make --no-print-directory help >"$OLDPWD/help" || exit 1
bad=0
for target in all deps demo test test-long asan tsan ubsan tidy bench fuzz model install uninstall clean \
	help musl aarch64; do
	grep -qE "^$target  +[a-zA-Z].{15}" "$OLDPWD/help" || { echo "no sentence for $target"; bad=1; }
done
[ "$(make --no-print-directory help | awk 'length > 100' | wc -l)" = 0 ] || { echo "too wide"; bad=1; }
exit $bad
