# the target gets descriptors, mask, limits, umask and folder as we got them, and nothing of ours
show() {
	plain="env -i HOME=/ PATH=$PATH TMPDIR=$TMPDIR"
	$plain "$@" ls -l /proc/self/fd | sed 1d | sed 's/.* \([0-9]*\) -> /\1 /; s/ [^ ]*:.*/ pipe/; s/[0-9]*.fd$/fd/'
	$plain "$@" grep '^Sig[BIC]' /proc/self/status
	$plain "$@" sh -c 'ulimit -a; umask; pwd; ps -o pgid=,tpgid=,ni= -p $$
		env | grep -v "^_=\|^LD_PRELOAD=\|^SPARRING_" | sort'
}
both() {
	eval "show $1" >out 2>&1
	mv out bare
	eval "show \"\$SPARRING\" record -q $1" >out 2>&1
	mv out recorded
	diff bare recorded && echo "the same: ${1:-as it is}"
}
rm -f bare recorded
both ''
both '<&-'
both '3</dev/null 9>file'
umask 027
ulimit -S -n 77 -c 0
trap '' HUP USR1 CHLD PIPE
both ''
