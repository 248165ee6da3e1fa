#!/bin/sh
# SPDX-License-Identifier: MIT
# deps.sh - installs what is missing with apt: NAME... or nothing for what `make test` needs, --all
# for what every target needs. Calls apt only if something is missing. Debian 12 has all of it.
set -eu

needed="gcc libc6-dev make libzstd-dev liburing-dev libcmocka-dev zstd strace python3
	procps bsdutils git"
further="clang clang-tidy clang-format musl-tools gcc-aarch64-linux-gnu libc6-dev-arm64-cross
	qemu-user spin valgrind libck-dev"
case ${1:-} in
'') wanted=$needed ;;
--all) wanted="$needed $further" ;;
*) wanted=$* ;;
esac

missing=
for package in $wanted; do
	state=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
	case $state in
	ii*) ;;
	*) missing="$missing $package" ;;
	esac
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "deps: no apt here; on Debian 12 this would install:$missing" >&2
	exit 0
fi
sudo=
if [ "$(id -u)" != 0 ]; then
	sudo=$(command -v sudo || true)
	if [ -z "$sudo" ]; then
		echo "deps: as root, run: apt-get install$missing" >&2
		exit 1
	fi
fi
echo "deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
install() { $sudo apt-get install -y -q --no-install-recommends $missing >"$log" 2>&1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! install; then # the machine's lists may be old or empty
	$sudo apt-get update -q >>"$log" 2>&1 || true
	install || { tail -20 "$log" >&2; echo "deps: apt could not install:$missing" >&2; exit 1; }
fi
