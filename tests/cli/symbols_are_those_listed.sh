# the libraries export what is listed and no more; the sender's needs no libc call that can be hooked, 64 KiB at most
cd "$ROOT" && tests/symbols.sh "$BUILD"
