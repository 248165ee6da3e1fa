# a trace that is cut or damaged anywhere is read as far as it goes, with status 2 and a sentence
"$SPARRING" record -q -o whole.spr -- sh -c ': >one; sleep 1.3; : >two'
bytes=$(stat -c %s whole.spr)
for at in $(seq 1 97 $((bytes - 2))) $((bytes - 9)) $((bytes - 1)); do
	head -c "$at" whole.spr >cut.spr
	"$SPARRING" show cut.spr >out 2>err
	[ $? = 2 ] || echo "cut at $at of $bytes: show does not say so"
	[ -s err ] || echo "cut at $at of $bytes: no sentence"
	grep -q /one out && ! grep -q /two out && some=1
	"$SPARRING" show - <cut.spr >out2 2>/dev/null
	[ $? = 2 ] || echo "cut at $at of $bytes: show of a pipe does not say so"
	cmp -s out out2 || echo "cut at $at of $bytes: a pipe shows something else"
	"$SPARRING" verdict cut.spr >/dev/null 2>&1
	[ $? = 2 ] || echo "cut at $at of $bytes: verdict does not say so"
done
[ -n "$some" ] && echo "what was synced before the cut is there"
for at in $(seq 1 61 $((bytes - 1))); do
	cp whole.spr bad.spr
	printf '\252\125\252' | dd of=bad.spr bs=1 seek="$at" conv=notrunc 2>/dev/null
	cmp -s whole.spr bad.spr && continue
	"$SPARRING" show bad.spr >/dev/null 2>err
	status=$?
	[ $status = 2 ] || echo "damaged at $at of $bytes: status $status"
	[ $status != 2 ] || [ -s err ] || echo "damaged at $at of $bytes: no sentence"
done
cat whole.spr | "$SPARRING" show - | cmp - <("$SPARRING" show whole.spr) && echo "a pipe is read as a file is"
cat whole.spr whole.spr | "$SPARRING" show - | grep -c /two
