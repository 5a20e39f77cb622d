#!/usr/bin/env bash
# How long an offline plan of 1,000 servers takes, and how much memory.
set -euo pipefail
bin=${1:-target/release/handover}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed '/^\[\[server\]\]/,$d' deploy.toml >"$dir/deploy.toml"
for n in $(seq 1000); do
  printf '\n[[server]]\nname = "s%d"\nssh = "s%d"\ntarget = "i-%017x"\nzone = "eu-central-1a"\n' "$n" "$n" "$n" >>"$dir/deploy.toml"
done
start=$(date +%s%N)
"$bin" -c "$dir/deploy.toml" plan --offline --output json >"$dir/out" &
pid=$!
peak=0
while kill -0 "$pid" 2>/dev/null; do
  now=$(awk '/VmHWM/{print $2}' "/proc/$pid/status" 2>/dev/null || true)
  [ "${now:-0}" -gt "$peak" ] && peak=$now
done
wait "$pid"
end=$(date +%s%N)
echo "plan of 1000 servers: $(((end - start) / 1000000)) ms, $((peak / 1024)) MB at most (wanted: under 1000 ms and 100 MB)"
