# examples/loop.c runs: a collector's descriptor in somebody else's poll loop
"$BUILD/examples/loop"
