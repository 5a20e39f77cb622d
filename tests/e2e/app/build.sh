#!/usr/bin/env bash
# Why: no public image can be pulled, so the app's images are made here, of one static binary, and pushed
# to the fleet's registry: registry.e2e:5000/mythex:v1, v2 (fine) and v3 (never verifies).
# Needs a fleet that is up. Prints what was pushed: TAG IMAGE@DIGEST, a line each.
#
#   build.sh                     v1, v2, v3
#   build.sh TAG [NAME=VALUE...] one more image with this environment baked in; an existing tag moves
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=${HANDOVER_E2E_DIR:-$here/../../../target/e2e}
state=$(cd "$state" && pwd)
name=registry.e2e:5000/mythex
read -r port registry < <(python3 - "$state/fleet.json" <<'PY'
import json, sys
registry = json.load(open(sys.argv[1]))["registry"]
print(registry["push"], registry["container"])
PY
)
flags=(--edition 2024 -O -C strip=symbols -C target-feature=+crt-static)

# The compiled program is kept by what it was made of.
key=$({ cat "$here/app.rs"; rustc --version; echo "${flags[@]}"; } | sha256sum | cut -c1-12)
rootfs=$state/app-$key.tar
if [[ ! -f $rootfs ]]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/root/bin" "$work/root/tmp"
    rustc "${flags[@]}" -o "$work/root/bin/app" "$here/app.rs"
    ln -s app "$work/root/bin/publish-worker"
    tar -C "$work/root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$rootfs.new" .
    mv "$rootfs.new" "$rootfs"
fi

make() { # make TAG [NAME=VALUE...]
    local tag=$1 changes=() pair
    shift
    for pair in "$@"; do changes+=(--change "ENV $pair"); done
    local local_name=$port/mythex:$tag
    docker import --change 'ENTRYPOINT ["/bin/app"]' --change 'ENV PATH=/bin' --change "ENV LABEL=$tag" \
        "${changes[@]}" "$rootfs" "$local_name" >/dev/null
    docker push --quiet "$local_name" >/dev/null
    printf '%s %s@%s\n' "$tag" "$name" \
        "$(docker image inspect --format '{{index .RepoDigests 0}}' "$local_name" | cut -d@ -f2)"
    docker image rm "$local_name" >/dev/null # the host keeps nothing of it
}

# What v1, v2, v3 are is kept for as long as this registry has them; --change stamps the time, so that
# making them once more would make other images.
made=$state/images
if (($# > 0)); then
    rm -f "$made"
    make "$@"
elif [[ $(head -n1 "$made" 2>/dev/null) != "# $key $registry" ]]; then
    { echo "# $key $registry"; make v1; make v2; make v3 FAIL_VERSION=1; } >"$made.new"
    mv "$made.new" "$made"
fi
(($# > 0)) || tail -n +2 "$made"
