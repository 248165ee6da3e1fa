# clean removes what is dead, in every place of this user, and nothing that lives or is not ours
mkdir -p place tmp/elsewhere
chmod 700 place
export SPARRING_DIR=$PWD/place TMPDIR=$PWD/tmp
ours=tmp/sparring-$(id -u)
mkdir -m 700 "$ours" "$ours-0123456789abcdef" "$ours-not-a-place"
for folder in place "$ours" "$ours-0123456789abcdef" "$ours-not-a-place"; do
	: >"$folder/spr-0123456789abcdef.ring"
	: >"$folder/notes.txt"
	ln -s ../elsewhere/precious "$folder/spr-fedcba9876543210.ring"
done
: >tmp/elsewhere/precious
"$SPARRING" record -q -- sh -c "
	'$SPARRING' clean | sed 's/sparring-[0-9]*/sparring-UID/' | grep -v '^removed /dev/shm\|^removed /tmp' | sort
	ls place | grep -c ring"
find . -type f -o -type l | sed 's/sparring-[0-9]*/sparring-UID/' | sort
"$SPARRING" clean -q
echo "=> $?"
SPARRING_DIR=$PWD/tmp/elsewhere/precious "$SPARRING" clean -q
echo "=> $?"
