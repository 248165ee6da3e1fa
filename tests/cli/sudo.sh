# under sudo the target runs as who called it, and the trace is theirs
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
id -u nobody >/dev/null || { echo "there is no user nobody" >&2; exit 77; }
uid=$(id -u nobody) gid=$(id -g nobody)
chmod 777 . && chmod a+x .. ../..
run() { env SUDO_UID=$uid SUDO_GID=$gid "$SPARRING" record -q "$@" sh -c 'id -u; id -g; id -G; echo $HOME $USER; cat /dev/null'; }
run -o theirs.spr -- | sed "s/\b$uid\b/UID/g; s/\b$gid\b/GID/g"
stat -c '%U %a' theirs.spr
"$SPARRING" show --json theirs.spr | grep -c '"path":"/dev/null"'
"$SPARRING" verdict theirs.spr | sed -n 2p
run -o mine.spr --user root -- | head -1
stat -c '%U' mine.spr
"$SPARRING" record --user no-such-user -- true
echo "=> $?"
setpriv --reuid=$uid --regid=$gid --clear-groups "$SPARRING" record --user root -o other.spr -- true
echo "=> $?"
ls
