# every command explains itself on standard output, with status 0
for command in '' record show verdict probe clean; do
	"$SPARRING" $command --help >help 2>err || echo "$command --help: status $?"
	[ -s err ] && echo "$command --help: writes to stderr"
	head -1 help | grep -q '^usage: sparring' || echo "$command --help: no line of usage"
	awk -v c="$command" 'length > 95 { print c " --help: a long line: " $0 }' help
	"$SPARRING" help $command | cmp - help
done
"$SPARRING" --help
"$SPARRING" --version | sed 's/[0-9.]\+$/VERSION/'
