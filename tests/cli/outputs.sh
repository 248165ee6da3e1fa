# the trace is a new file of mode 0600, whole when it has its name; links are not followed
record() { "$SPARRING" record -q "$@"; }
umask 0
record -o new.spr -- true
stat -c '%n %a' new.spr
# What was there is replaced; what a link points to is not touched.
echo precious >file
ln -s file link
record -o link -- true
cat file
stat -c '%n %F %a' link
ln -s nowhere dangling
record -o dangling -- true
[ -e nowhere ] && echo "a dangling link was followed"
umask 0777
record -o masked.spr -- true
stat -c '%n %a' masked.spr
umask 022
# While it runs there is a part, and at its end there is none.
record -o long.spr -- sh -c 'ls long.spr*' | sed 's/-[0-9a-f]\{8\}$/-XXXXXXXX/'
ls long.spr*
# Pipes are written straight through, and hold the same.
record -o - -- true | "$SPARRING" verdict - | head -1
record -o /dev/stdout -- true | "$SPARRING" verdict - | head -1
record -o /dev/fd/3 -- true 3>&1 | "$SPARRING" verdict - | head -1
mkfifo fifo
"$SPARRING" verdict fifo | head -1 &
record -o fifo -- true
wait
# A name as long as names can be.
long=$(printf '%0255d' 0)
record -o "$long" -- true
[ -e "$long" ] && echo "a long name is no trouble"
rm "$long"
ls
