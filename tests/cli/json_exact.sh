# show --json: the fields that are promised, exact and escaped
command -v python3 >/dev/null || { echo "python3 reads the JSON" >&2; exit 77; }
printf 'hello' >'with "quotes" and \backslash'
bad=$(printf 'not-utf8-\377\376')
: >"$bad"
"$SPARRING" record -q --  sh -c 'cat "with \"quotes\" and \\backslash" "$1" missing >/dev/null 2>&1
	mv "$1" moved; mkdir made; cd made; : >../up; ls . >/dev/null; exit 3' sh "$bad"
echo "=> $?"
"$SPARRING" show --json sparring.spr >json
echo "=> $?"
python3 "$TESTS/json_exact.py" json
