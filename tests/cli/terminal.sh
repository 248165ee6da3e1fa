# on a terminal ^C, ^\ and ^Z are the target's; fg goes on; reading waits for the foreground
command -v python3 >/dev/null || { echo "python3 plays the terminal" >&2; exit 77; }
python3 "$TESTS/terminal.py" "$SPARRING"
