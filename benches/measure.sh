#!/usr/bin/env bash
# How well `handover measure` keeps 2,000 requests per second on one core, against a server on the other: rate, schedule
# error, CPU and memory, in HTTP/1.1 and HTTP/2.
# Needs `cargo build --release --bin handover --example bench-server` first.
set -euo pipefail
bin=${1:-target/release/handover}
server=${2:-target/release/examples/bench-server}
rate=${RATE:-2000}
length=${LENGTH:-20s}
dir=$(mktemp -d)
taskset -c 1 "$server" >"$dir/addresses" &
pid=$!
trap 'kill "$pid"; rm -rf "$dir"' EXIT
until [ -s "$dir/addresses" ]; do sleep 0.1; done
read -r one two <"$dir/addresses"

run() { # NAME URL ARGS...
  local name=$1 out=$dir/out peak=0 ticks
  shift
  taskset -c 0 "$bin" measure "$@" --rate "$rate" --for "$length" --output json >"$out" </dev/null &
  local it=$!
  while kill -0 "$it" 2>/dev/null; do
    # The last numbers before it ends are the whole run's, but for a tenth of a second.
    peak=$(awk '/VmHWM/{print $2}' "/proc/$it/status" 2>/dev/null || true)
    ticks=$(awk '{print $14 + $15}' "/proc/$it/stat" 2>/dev/null || true)
    [ -z "$peak" ] || echo "$peak ${ticks:-0}" >"$dir/used"
    sleep 0.1
  done
  wait "$it"
  read -r peak ticks <"$dir/used"
  tail -1 "$out" | python3 -c '
import json, sys
s, hz, ticks, peak = json.load(sys.stdin), *map(int, sys.argv[2:])
late, requests = s["schedule"], s["requests"]
ms = lambda name: "%.3f ms" % (late[name] * 1000)
print("%s: %.0f/s wanted, %.1f/s sent; late p50 %s, p99 %s (wanted: under 1 ms), max %s; CPU %.0f %% of a core, %d MB; %d of %d served"
    % (sys.argv[1], s["rate"]["requested"], s["rate"]["achieved"], ms("late_p50_seconds"), ms("late_p99_seconds"),
       ms("late_max_seconds"), ticks / hz / s["seconds"] * 100, peak // 1024, requests["served"], requests["total"]))
' "$name" "$(getconf CLK_TCK)" "$ticks" "$peak"
}

run HTTP/1.1 "http://$one/"
run HTTP/2 "http://$two/" --http2
