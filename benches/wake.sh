#!/usr/bin/env bash
# Why: waking a backend should cost what its container costs and nothing on top. Wakes a container that takes SECONDS to accept,
# ROUNDS times, and prints the parts of each wake beside what the container needs when it is started by hand.
# Needs docker, python3, curl and rustc.
#
# wake.sh BINARY [SECONDS] [ROUNDS]
set -euo pipefail
bin=$(realpath "${1:-target/release/handover}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec python3 "$here/wake.py" "$bin" "${2:-3}" "${3:-5}"
