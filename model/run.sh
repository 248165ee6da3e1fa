#!/bin/sh
# SPDX-License-Identifier: MIT
#
# run.sh - checks every model of the ring, clean and with each seeded fault (make model).
#	model/run.sh BUILD [WORD]	WORD: only the runs whose line has it; LONG=1: the large ones too
# A clean model must be searched to the end without error; a fault must break the very invariant it
# was planted against. One line each. Exit 1 if not so; without spin it says so and skips.
set -u
cd "$(dirname "$0")/.." || exit 1
work=${1:?model/run.sh BUILD [WORD]} only=${2:-}
failed=0 runs=0 states_sum=0 started=$(date +%s)

# What the README says is checked are the pairs of shm/layout.h.
model/pairs.sh || failed=1
for tool in spin cc; do
	if ! command -v "$tool" >/dev/null; then
		echo "skip: no $tool here (make deps-all installs it)"
		exit $failed
	fi
done
mkdir -p "$work" && work=$(cd "$work" && pwd) || exit 1

# run EXPECTED MODEL WHAT FLAGS...: EXPECTED is - (no error) or the invariant that must break.
# -DLIVENESS: the model's ltl formula, under weak fairness.
run() {
	expected=$1 model=$2 what=$3
	shift 3
	case "$model $what $*" in *"$only"*) ;; *) return ;; esac
	build=-DSAFETY search= optimise=-O2
	[ "$expected" = - ] || optimise=-O0 # found soon: compiling is what takes the time
	case " $* " in *" -DLIVENESS "*) build=-DNFAIR=5 search='-a -f' ;; esac
	cp "model/$model.pml" "$work/m.pml"
	# shellcheck disable=SC2086
	out=$(cd "$work" && rm -f m.pml.trail pan && spin -a "$@" m.pml 2>&1 &&
		cc $optimise -w -DCOLLAPSE -DMEMLIM=3900 $build -o pan pan.c 2>&1 &&
		./pan -m100000 $search 2>&1)
	broke=$(echo "$out" | sed -n 's/^pan:[0-9]*: assertion violated  *!*(*\([A-Za-z0-9_]*\).*/\1/p
		s/^pan:[0-9]*: \(acceptance cycle\|invalid end state\).*/\1/p' | head -n 1)
	states=$(echo "$out" | awk '/states, stored/ { printf "%.0f", $1; exit }')
	verdict=FAIL said="expected ${expected#-}, got ${broke:-nothing}"
	if [ "$expected" = - ]; then
		case $out in
		*"not completed"* | *"max search depth"*) ;;
		*"errors: 0"*) verdict=ok said="no error" ;;
		esac
	elif [ "$broke" = "$expected" ]; then
		verdict=ok said="found: $broke"
	fi
	printf '%-4s %-9s %-55s %9s states, %s\n' "$verdict" "$model" "$what" "${states:-no}" "$said"
	[ $verdict = ok ] || { failed=1; echo "$out" | head -n 20; }
	runs=$((runs + 1)) states_sum=$((states_sum + ${states:-0}))
}

long() {
	[ -z "${LONG:-}" ] || run "$@"
}

. model/runs

echo "$runs runs, $states_sum states, $(($(date +%s) - started)) s"
exit $failed
