#!/usr/bin/env bash
# Why: an API that we wrote both ends of proves nothing. boto3 asks our simulator and moto the same questions and the shapes
# are compared; our own client asks moto.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${1:-target/release/handover}
venv=target/peers
if [ ! -x "$venv/bin/moto_server" ]; then
  python3 -m venv "$venv" 2>/dev/null || { apt-get install -y -qq python3-venv >/dev/null && python3 -m venv "$venv"; }
  "$venv/bin/pip" install --quiet 'moto[server]==5.2.5' 'boto3==1.44.8'
fi
work=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT
export AWS_ACCESS_KEY_ID=peer AWS_SECRET_ACCESS_KEY=peer AWS_DEFAULT_REGION=eu-central-1 AWS_EC2_METADATA_DISABLED=true NO_PROXY='*'

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$venv/bin/moto_server" -H 127.0.0.1 -p "$port" >"$work/moto.log" 2>&1 &
pids+=($!)
cat >"$work/spec.json" <<'JSON'
{"groups": [{"name": "peers", "port": 80, "path": "/health", "interval": 5, "timeout": 2, "unhealthy": 2, "healthy": 2,
  "targets": [{"id": "i-00000000000000001", "address": "127.0.0.1:9", "zone": "eu-central-1a"}]}]}
JSON
"$bin" lab-balancer "$work/spec.json" >"$work/lab.json" &
pids+=($!)
for _ in $(seq 100); do
  [ -s "$work/lab.json" ] && curl -so /dev/null "http://127.0.0.1:$port/moto-api/" && break
  sleep 0.2
done
lab=$(python3 -c 'import json, sys; print(json.loads(sys.stdin.readline())["control_plane"])' <"$work/lab.json")
"$venv/bin/python" tests/peers/shapes.py "$lab" "http://127.0.0.1:$port"
"$venv/bin/python" tests/peers/provision.py "$bin" "http://127.0.0.1:$port"
HANDOVER_MOTO="http://127.0.0.1:$port" cargo test --quiet --test it -- --ignored --exact peers::our_client_reads_what_moto_answers
