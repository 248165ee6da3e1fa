# a trace that is not there, no file, or no trace at all: a sentence and a status
exec 2>&1
run() {
	echo "\$ sparring $*"
	"$SPARRING" "$@" | sed 1,1{/SECONDS/d}
	echo "=> ${PIPESTATUS[0]}"
}
: >empty.spr
echo 'Dear diary, today nothing was recorded.' >diary.txt
mkdir folder
ln -s loop loop
for command in show verdict; do
	run $command missing.spr
	run $command folder
	run $command loop
	run $command empty.spr
	run $command diary.txt
	run $command - <diary.txt
	run $command - <empty.spr
	run $command - <&-
done
