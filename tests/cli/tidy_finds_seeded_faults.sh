# tests/tidy.sh passes a clean tree and finds each of the faults sown into it
set -u
bad=0
sow() { # what it must say, then a command that sows it in the tree
	rm -rf tree && cp -r clean tree
	(cd tree && eval "$2")
	if said=$("$ROOT/tests/tidy.sh" "$PWD/tree" 2>&1); then
		echo "not found: $2"
		bad=1
	elif ! echo "$said" | grep -q "$1" || [ "$(echo "$said" | wc -l)" != "${3:-1}" ]; then
		printf 'said instead of "%s":\n%s\n' "$1" "$said"
		bad=1
	fi
}

mkdir -p clean/base clean/shm clean/encoder clean/collector clean/include/sparring
cp "$ROOT/LAYERS" clean/
cat >clean/shm/ring.c <<'END'
/* SPDX-License-Identifier: MIT */
/*
 * ring.c - a toy. Pairs:
 *
 *   | pair   | release side | acquire side | carries |
 *   | COMMIT | the writer   | the reader   | bytes   |
 */
#include "base/atomic.h"

void ring_commit(struct ring *r)
{
	spr_store_release(&r->tail, 1); /* [COMMIT] */
}

int ring_look(struct ring *r)
{
	return spr_load_acquire(&r->tail); /* [COMMIT] */
}
END
printf '/* SPDX-License-Identifier: MIT */\n/* other.c - nothing. */\n' | tee clean/base/atomic.h \
	clean/encoder/x.c clean/collector/y.c >clean/base/z.c

"$ROOT/tests/tidy.sh" "$PWD/clean" || { echo "the clean tree does not pass"; bad=1; }

sow 'base/z.c:3: base/ may not include shm/' "echo '#include \"shm/ring.h\"' >>base/z.c"
sow 'encoder/ may not include collector/' "echo '#include \"collector/y.h\"' >>encoder/x.c"
sow 'encoder/ may not include shm/' "echo '#include \"shm/ring.h\"' >>encoder/x.c"
sow 'include from the root' "echo '#include \"z.h\"' >>base/z.c"
sow 'no SPDX line' "sed -i '1s/.*/\/* mine *\//' base/z.c"
sow 'no sentence' "sed -i '2s/.*/int x;/' base/z.c"
sow 'a function of 71 lines' \
	"{ echo 'int f(void)'; echo '{'; yes 'x++;' | head -71; echo '}'; } >>base/z.c"
sow '101 columns' "printf '\t%093d\n' 0 >>base/z.c"
sow 'blanks at the end' "echo 'int x; ' >>base/z.c"
sow '// comment' "echo '// so' >>base/z.c"
sow 'atomics only by base/atomic.h' "echo 'atomic_store(&x, 1);' >>shm/ring.c"
sow 'atomics only by base/atomic.h' "echo '#include <stdatomic.h>' >>shm/ring.c"
sow 'without its pair' "echo '	spr_store_release(&x, 1);' >>shm/ring.c"
sow 'COMMIT has no acquire side' "sed -i 's/spr_load_acquire(.*/0;/' shm/ring.c"
sow 'COMMIT has no release side' "sed -i 's/spr_store_release(.*/;/' shm/ring.c"
sow 'COMMIT stands in no table' "sed -i '/| COMMIT/d' shm/ring.c"
sow 'a verb that style.md' "echo 'void spr_base_ring_destroy(void);' >>base/z.c"
exit $bad
