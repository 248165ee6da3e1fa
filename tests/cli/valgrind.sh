# a program under valgrind has the errors that it has alone: none of ours
command -v valgrind >/dev/null || { echo "no valgrind here" >&2; exit 77; }
valgrind -q --error-exitcode=9 ls / >alone 2>err || { echo "valgrind itself fails here" >&2; exit 77; }
"$SPARRING" record -q --capacity 16M -- valgrind -q --error-exitcode=9 ls / >recorded 2>err
echo "=> $?"
cat err
cmp alone recorded
"$SPARRING" show --kind file sparring.spr | grep -c 'opendir .*list *//*$'
