# wrong usage is told in a sentence, with status 64
exec 2>&1
run() {
	echo "\$ sparring $*"
	"$SPARRING" "$@"
	echo "=> $?"
}
run nonsense
run --nonsense
run record
run record --
run record -o
run record -o '' -- true
run record --nonsense -- true
run record -xq -- true
run record --capacity much -- true
run record --capacity 0 -- true
run record --stall-ms soon -- true
run record --report-fd 77 -- true
run record --report-fd two -- true
run record --transport carrier -- true
run record --backend eyes -- true
run show
run show a b
run show --pid me a.spr
run show --from noon a.spr
run show --to
run verdict
run verdict a b
run verdict --yaml a
run probe a
run clean a
run help nonsense
printf 'an escape: ' && "$SPARRING" "$(printf '\033[31mred')"
ls
