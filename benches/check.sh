#!/usr/bin/env bash
# How long an offline check takes: of the example beside its compose file, and of 1,000 servers.
set -euo pipefail
bin=$(realpath "${1:-target/release/handover}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/many"
cp deploy.toml compose.yaml "$dir"
cp compose.yaml "$dir/many"
sed '/^\[\[server\]\]/,$d' deploy.toml >"$dir/many/deploy.toml"
for n in $(seq 1000); do
  printf '\n[[server]]\nname = "s%d"\nssh = "s%d"\ntarget = "i-%017x"\nzone = "eu-central-1a"\n' "$n" "$n" "$n" >>"$dir/many/deploy.toml"
done

# The middle one of eleven runs, in milliseconds; what the check finds is not the question here.
middle() { # DEPLOY_TOML
  for _ in $(seq 11); do
    local start
    start=$(date +%s%N)
    "$bin" -c "$1" check --output json >"$dir/out" || [ $? = 4 ]
    echo $((($(date +%s%N) - start) / 1000000))
  done | sort -n | sed -n 6p
}
echo "check of the example: $(middle "$dir/deploy.toml") ms (wanted: under 100 ms)"
echo "check of 1000 servers: $(middle "$dir/many/deploy.toml") ms (wanted: under 1000 ms)"
