# probe lists each feature; one that SPARRING_DISABLE names is not usable, and says why
"$SPARRING" probe | grep -q '^ring  *yes' || echo "no ring"
SPARRING_DISABLE=io_uring "$SPARRING" probe | grep -A1 '^io_uring '
"$SPARRING" probe --json >json || echo "status $?"
if command -v python3 >/dev/null; then
	python3 - <<-END
	import json
	probe = json.load(open('json'))
	for f in probe['features']:
	    assert set(f) >= {'name', 'usable', 'built', 'what'}, f
	    assert f['usable'] or not f['built'] or f['reason'], f
	END
fi
# What cannot be done without is not done.
for name in ring ofd_lock; do
	SPARRING_DISABLE=$name "$SPARRING" record -- true 2>&1
	echo "=> $?"
done
# A name that is none is not passed over.
SPARRING_DISABLE=io_uring,uring "$SPARRING" record -- true 2>&1
echo "=> $?"
