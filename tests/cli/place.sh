# a private place that cannot be used is told before the target starts; nothing is left in one that can
exec 2>&1
run() {
	echo "\$ $1"
	env SPARRING_DIR="$2" "$SPARRING" record -q -- sh -c 'echo was run'
	echo "=> $?"
}
run "its parent is missing" "$PWD/missing/place"
: >file
run "a file" "$PWD/file"
mkdir -m 700 elsewhere
ln -s elsewhere link
run "a link planted in our way" "$PWD/link"
mkdir -m 777 open
run "others may write in it" "$PWD/open"
run "a name of 300 characters" "$PWD/$(printf '%0300d' 0)"
run "made when missing" "$PWD/place"
run "a name with everything" "$PWD/$(printf 'a b:c$d\047e%0150d' 0)"
mkdir relative
run "relative" relative/place
run "again" "$PWD/place"
find . -type f -path '*place*' -o -type f -path '*relative*'
ls elsewhere place
