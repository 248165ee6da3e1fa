#!/bin/sh
# SPDX-License-Identifier: MIT
# install.sh - make install and uninstall: what goes where, once for both.
#	install.sh install|uninstall BUILD TO PREFIX DST_LIB VERSION
# TO is PREFIX with DESTDIR in front. DST_LIB (lib/x86_64-linux-gnu) is what the dynamic linker puts
# for $LIB, so that the command finds the spies as it does in the build folder.
set -eu
what=$1 build=$2 to=$3 prefix=$4 dst_lib=$5 version=$6
so=${version%%.*}

pc() {
	cat <<-EOF
	prefix=$prefix
	includedir=\${prefix}/include
	libdir=\${prefix}/$dst_lib

	Name: sparring
	Description: small records from many producers to one collector, swappable transports
	Version: $version
	Libs: -L\${libdir} -lsparring
	Libs.private: -lzstd -luring -pthread
	Cflags: -I\${includedir}
	EOF
}

# kind, source, target below the prefix
list() {
	echo "755 $build/sparring bin/sparring"
	for h in include/sparring/*.h; do echo "644 $h $h"; done
	echo "644 $build/libsparring.so.$version $dst_lib/libsparring.so.$version"
	echo "644 $build/libsparring.a $dst_lib/libsparring.a"
	echo "644 $build/libsparring-writer.a $dst_lib/libsparring-writer.a"
	for f in "$build"/lib/*/*.so "$build"/lib64/*.so; do
		[ -e "$f" ] && echo "644 $f ${f#"$build"/}"
	done
	for f in man/*.[1-8]; do
		[ -e "$f" ] && echo "644 $f share/man/man${f##*.}/${f##*/}"
	done
	return 0
}

case $what in
install)
	list | while read -r mode from at; do
		[ -e "$from" ] || { echo "left out: $at (not built)"; continue; }
		install -D -m "$mode" "$from" "$to/$at"
	done
	ln -sf "libsparring.so.$version" "$to/$dst_lib/libsparring.so.$so"
	ln -sf "libsparring.so.$so" "$to/$dst_lib/libsparring.so"
	mkdir -p "$to/$dst_lib/pkgconfig"
	pc >"$to/$dst_lib/pkgconfig/sparring.pc"
	;;
uninstall)
	list | while read -r mode from at; do rm -f "$to/$at"; done
	rm -f "$to/$dst_lib/libsparring.so.$so" "$to/$dst_lib/libsparring.so" \
		"$to/$dst_lib/pkgconfig/sparring.pc"
	rmdir "$to/include/sparring" 2>/dev/null || true
	;;
esac
