# a recording inside a recording: each has the verdict and the records it would have alone
paths() { "$SPARRING" show --json --kind file "$1" | grep -o '"path":"[^"]*seen-[a-z]*"' | sort -u; }
"$SPARRING" record -o alone.spr -- sh -c ': >seen-inside; cat seen-inside' 2>alone
"$SPARRING" record -o outer.spr -- sh -c "
	: >seen-before
	'$SPARRING' record -o inner.spr -- sh -c ': >seen-inside; cat seen-inside; exit 5' 2>inner
	echo \"=> \$?\"
	: >seen-after" 2>outer
echo "=> $?"
paths alone.spr | sed 's|.*/|alone |'
paths inner.spr | sed 's|.*/|inner |'
paths outer.spr | sed 's|.*/|outer |'
sed 's/.*process[es]*, //; s/[a-z]*\.spr/FILE/' alone inner outer
