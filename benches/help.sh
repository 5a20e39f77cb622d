#!/usr/bin/env bash
# How long `handover --help` takes: the mean of 50 runs, in milliseconds.
set -euo pipefail
bin=${1:-target/release/handover}
start=$(date +%s%N)
for _ in $(seq 50); do "$bin" --help >/dev/null; done
end=$(date +%s%N)
echo "help: $(((end - start) / 50000)) us a run (wanted: under 20000)"
