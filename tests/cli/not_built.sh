# what this version is built without is told, and nothing is run
exec 2>&1
for option in --transport\ {arena,pipe:,unix,bpf} --backend\ {gate,hooks+gate,bpf}; do
	$SPARRING record $option -- sh -c 'echo was run'
	echo "=> $?"
done
ls
