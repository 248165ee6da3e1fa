# record answers with the target's own status, or says in one why it did not start
exec 2>&1
run() {
	"$SPARRING" record -q "$@"
	echo "=> $?"
}
run -- true
run -- false
run -- sh -c 'exit 77'
run -- sh -c 'kill -TERM $$'
run -- sh -c 'kill -KILL $$'
run --strict -- true
run --strict -- sh -c 'exit 9'
rm -f sparring.spr
run -- no-such-program-here
run -- ./no-such-program-here
echo 'not a program' >text
run -- ./text
chmod +x text
mkdir folder
run -- ./folder
printf '#!/no/such/interpreter\n' >script
chmod +x script
run -- ./script
# Nothing was recorded, so nothing is left behind.
ls
# A script without a first line is the shell's, as with every program that starts others.
echo 'echo "run by a shell, $1"; exit 3' >script
run -- ./script after all
