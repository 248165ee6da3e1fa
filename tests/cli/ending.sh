# what a child does as the recording ends is in the trace, or the child is named as left running
echo text >file
for round in $(seq 25); do
	"$SPARRING" record -q -- sh -c '(: <file) & exit 0'
	"$SPARRING" show --kind file sparring.spr | grep -q '/file$' ||
		"$SPARRING" verdict --json sparring.spr | grep -q '"left_running":[1-9]' ||
		echo "round $round: neither"
done
