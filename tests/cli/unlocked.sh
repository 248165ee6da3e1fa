# who has no descriptor to spare for its lock is left running only while it runs
: >file
mkfifo there
verdict() { "$SPARRING" verdict --json sparring.spr | grep -o '"left_running":[0-9]*'; }
"$SPARRING" record -q -- sh -c "ulimit -n 3; (read y <file); :" 2>err
"$SPARRING" show --kind file sparring.spr | grep -c '/file  EMFILE$'
verdict
"$SPARRING" record -q -- sh -c '
	ulimit -n 3; (read y <file; echo; while [ ! -e go ]; do :; done) & read z' 2>err 0<>there 1>&0
verdict
: >go
