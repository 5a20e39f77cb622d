#!/usr/bin/env bash
# How long `measure --access-log` takes for 5,000,000 lines on one core, plain and packed, and how much memory.
# Usage: benches/access-log.sh [BINARY] [LINES]; the log (2.5 GB) is written under TMPDIR and taken away again.
set -euo pipefail
bin=${1:-target/release/handover}
lines=${2:-5000000}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# One line a millisecond from four targets, 1 of 1,000 lost in one way or another; every line has its own client, times, path and ids.
awk -v lines="$lines" 'BEGIN {
  srand(7)
  split("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36|Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1|curl/8.5.0|shop-app/7.3 (okhttp)", agents, "|")
  arn = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:targetgroup/shop/0a1b2c3d4e5f6071"
  cert = "arn:aws:acm:eu-central-1:111122223333:certificate/00000000-0000-4000-8000-000000000000"
  for (n = 0; n < lines; n++) {
    second = int(n / 1000)
    stamp = sprintf("2026-11-29T%02d:%02d:%02d.%03d", int(second / 3600) % 24, int(second / 60) % 60, second % 60, n % 1000)
    r = rand(); micros = int(rand() * 1000); target = "198.51.100." (1 + n % 4) ":8080"
    took = sprintf("0.00%d %.3f 0.000", int(rand() * 4), r / 4); status = "200 200"; codes = "200"
    if (r < 0.0004) { took = "-1 -1 -1"; status = "502 -"; codes = "-" }
    else if (r < 0.0008) { took = "0.001 4.205 -1"; status = "502 -"; codes = "-" }
    else if (r < 0.001) { took = "-1 -1 -1"; status = "503 -"; codes = "-"; target = "-" }
    printf "https %s%03dZ app/shop/0123456789abcdef 192.0.2.%d:%d %s %s %s %d %d \"GET https://shop.example:443/item/%d?page=%d HTTP/1.1\" \"%s\" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 %s \"Root=1-%08x-%08x%08x%08x\" \"shop.example\" \"%s\" 10 %s%03dZ \"waf,forward\" \"-\" \"-\" \"%s\" \"%s\" \"-\" \"-\" TID_%08x%08x%08x%08x \"-\" \"-\" \"-\"\n", stamp, micros, int(rand() * 254), 1024 + int(rand() * 60000), target, took, status, rand() * 900, rand() * 20000, rand() * 100000, rand() * 50, agents[1 + int(rand() * 4)], arn, 1764417600 + second, rand() * 4294967295, rand() * 4294967295, rand() * 4294967295, cert, stamp, int(micros / 2), target, codes, rand() * 4294967295, rand() * 4294967295, rand() * 4294967295, rand() * 4294967295
  }
}' >"$dir/plain.log"
gzip -k -c "$dir/plain.log" >"$dir/packed.log.gz"

measure() {
  local start end pid peak=0 now cpu=0
  cat "$1" >/dev/null
  start=$(date +%s%N)
  taskset -c 0 "$bin" measure --output json --from 2026-11-29T00:20:00Z --to 2026-11-29T00:30:00Z --access-log "$1" >"$dir/out" &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    now=$(awk '/VmHWM/{print $2}' "/proc/$pid/status" 2>/dev/null || true)
    [ "${now:-0}" -gt "$peak" ] && peak=$now
    now=$(awk '{print ($14 + $15) * 10}' "/proc/$pid/stat" 2>/dev/null || true)
    [ "${now:-0}" -gt "$cpu" ] && cpu=$now
    sleep 0.05
  done
  wait "$pid" || [ $? -eq 7 ]
  end=$(date +%s%N)
  grep -q "\"requests\":$lines," "$dir/out" || { echo "not every line was counted: $(tail -c 300 "$dir/out")" >&2; exit 1; }
  echo "$(basename "$1"), $(stat -c %s "$1") bytes: $(((end - start) / 1000000)) ms ($cpu ms of them computing), $((lines * 1000 / ((end - start) / 1000000))) lines/s, $((peak / 1024)) MB at most"
}
echo "$lines lines on one core (wanted: under 10000 ms and 50 MB)"
measure "$dir/plain.log"
measure "$dir/packed.log.gz"
