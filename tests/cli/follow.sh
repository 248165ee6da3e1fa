# show --follow finds the part of a running recording by itself and reads to its end, or its cut
wait_for() { for _ in $(seq 200); do [ -e "$1" ] && return; sleep 0.02; done; echo "no $1"; }
"$SPARRING" record -q -o a.spr -- sh -c ': >first; : >ready; while [ ! -e go ]; do sleep 0.1; done; : >last' &
wait_for ready
"$SPARRING" show --follow --kind file a.spr >seen &
follower=$!
for _ in $(seq 200); do grep -q first seen && break; sleep 0.05; done
grep -q first seen || echo "the first is not seen while it runs"
grep -q last seen && echo "the last is seen before it was done"
: >go
wait $follower
echo "=> $?"
grep -o '/last$' seen
wait
# Once the recorder is gone there is nothing to wait for.
rm -f ready go
"$SPARRING" record -q -o b.spr -- sh -c 'echo $PPID >recorder; echo $$ >target; : >ready; while [ ! -e go ]; do sleep 0.1; done' &
wait_for ready
"$SPARRING" show --follow --kind file b.spr >seen 2>err &
follower=$!
for _ in $(seq 200); do grep -q ready seen && break; sleep 0.05; done
kill -KILL "$(cat recorder)"
wait $follower
echo "=> $?"
cat err
kill "$(cat target)"
"$SPARRING" show --follow c.spr
echo "=> $?"
