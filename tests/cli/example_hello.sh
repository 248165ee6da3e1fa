# examples/hello.c, the program of the README, runs: channel, producer, collector, trace, reading back
"$BUILD/examples/hello" && zstd -t -q hello.spr
