# killed in the middle, the recorder leaves a part that can be read; the target goes on
mkdir -m 700 place
export SPARRING_DIR=$PWD/place
"$SPARRING" record -q -- sh -c '
	echo $PPID >recorder
	while [ ! -e go ]; do sleep 0.05; done
	for i in 1 2 3 4 5 6 7 8 9; do : >"file$i"; done; echo "the target ends well" >end' 2>err &
for _ in $(seq 200); do [ -s recorder ] && break; sleep 0.05; done
sleep 1.5
kill -KILL "$(cat recorder)"
wait $! 2>/dev/null
: >go
for _ in $(seq 200); do [ -s end ] && break; sleep 0.05; done
cat end
ls -d [d-s]* | sed 's/-[0-9a-f]\{8\}$/-XXXXXXXX/'
"$SPARRING" show --json sparring.spr.part-* 2>err >json
echo "=> $?"
sed 's/part-[0-9a-f]*/part-XXXXXXXX/' err
grep -q recorder json || echo "what was synced cannot be read"
"$SPARRING" verdict sparring.spr.part-* | sed -n '1,5s/[0-9]* records/N records/p; 1,5{/records/!p}'
echo "=> ${PIPESTATUS[0]}"
# Its ring is swept by the next, or by hand; never while it is in use.
[ "$(ls place | wc -l)" = 1 ] || echo "place: $(ls place)"
cp place/*.ring copy
"$SPARRING" record -q -- sh -c "cp copy place/spr-0123456789abcdef.ring; '$SPARRING' clean | grep place; ls place | wc -l"
ls place
"$SPARRING" clean | grep place
true
