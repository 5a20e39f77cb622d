#!/usr/bin/env bash
# Makes the certificates that tests/it/measure.rs uses: a CA of its own, a server's for this machine, and a CA that
# nobody uses. They are good for a hundred years and for nothing but these tests.
set -euo pipefail
cd "$(dirname "$0")"
ca() { # NAME
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 -keyout "$1-key.pem" -out "$1.pem" \
    -subj "/CN=handover test $1" -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign" 2>/dev/null
}
ca ca
ca other
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server-key.pem -out server.csr -subj "/CN=localhost" 2>/dev/null
# Good since long ago, for machines whose clock is behind.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/index"
printf '%s\n' '[ca]' 'default_ca=d' '[d]' "database=$work/index" "new_certs_dir=$work" "rand_serial=yes" \
  'default_md=sha256' 'policy=p' 'x509_extensions=e' '[p]' 'commonName=supplied' '[e]' \
  'subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1' 'basicConstraints=CA:FALSE' >"$work/conf"
openssl ca -batch -notext -config "$work/conf" -cert ca.pem -keyfile ca-key.pem -in server.csr -out server.pem \
  -startdate 20200101000000Z -enddate 21200101000000Z 2>/dev/null
rm -f server.csr ca-key.pem other-key.pem
