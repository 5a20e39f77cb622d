#!/usr/bin/env bash
# Why: what a gateway costs is measured beside what one would use otherwise, on one core, in one run. nginx, HAProxy and Caddy
# forward the same requests to the same backend; prints requests a second with 256 connections, and latencies at half of nginx's
# maximum. Needs two cores, nginx, haproxy, wrk and h2load (Debian: nginx-light haproxy wrk nghttp2-client), and a Caddy.
#
# gateway.sh BINARY [CADDY] [SECONDS]
set -euo pipefail
bin=$(realpath "${1:-target/release/handover}")
caddy=${2:-}
seconds=${3:-8}
work=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
ulimit -n "$(ulimit -Hn)"
chmod 755 "$work"
mkdir "$work/www"
head -c 1024 /dev/zero | tr '\0' x >"$work/www/index.html"
base=${PORT:-19400}
on() { # CORE COMMAND...
  taskset -c "$1" "${@:2}" >/dev/null 2>>"$work/log" &
  pids+=($!)
}
common="daemon off; worker_processes 1; error_log /dev/null; events { worker_connections 16000; }"
cat >"$work/back.conf" <<END
pid $work/back.pid; $common
http { access_log off; keepalive_requests 100000000; client_body_temp_path $work/b;
  server { listen 127.0.0.1:$base backlog=4096; location / { root $work/www; } } }
END
cat >"$work/nginx.conf" <<END
pid $work/nginx.pid; $common
http { access_log off; keepalive_requests 100000000; client_body_temp_path $work/n; proxy_temp_path $work/p;
  upstream back { server 127.0.0.1:$base; keepalive 512; keepalive_requests 100000000; }
  server { listen 127.0.0.1:$((base + 1)) backlog=4096; location / { proxy_pass http://back; proxy_http_version 1.1;
    proxy_set_header Connection ""; proxy_set_header Host \$host; proxy_set_header X-Forwarded-For \$remote_addr; } } }
END
cat >"$work/haproxy.cfg" <<END
global
  maxconn 8000
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option forwardfor
  http-reuse safe
frontend front
  bind 127.0.0.1:$((base + 2)) backlog 4096
  default_backend back
backend back
  server back 127.0.0.1:$base
END
printf '{\nadmin off\nauto_https off\n}\nhttp://127.0.0.1:%s {\nreverse_proxy 127.0.0.1:%s {\ntransport http {\nkeepalive_idle_conns_per_host 512\n}\n}\n}\n' \
  $((base + 3)) "$base" >"$work/Caddyfile"
cat >"$work/gateway.toml" <<END
[gateway]
listen  = "127.0.0.1:$((base + 4))"
metrics = "127.0.0.1:$((base + 5))"
workers = 1
[[gateway.host]]
name    = "127.0.0.1"
backend = "http://127.0.0.1:$base"
END
on 1 nginx -c "$work/back.conf"
on 0 nginx -c "$work/nginx.conf"
on 0 haproxy -f "$work/haproxy.cfg"
names=(nginx HAProxy)
ports=($((base + 1)) $((base + 2)))
if [ -n "$caddy" ]; then
  HOME=$work GOMAXPROCS=1 on 0 "$caddy" run --config "$work/Caddyfile" --adapter caddyfile
  names+=(Caddy)
  ports+=($((base + 3)))
fi
on 0 "$bin" gateway -c "$work/gateway.toml"
names+=(handover)
ports+=($((base + 4)))
for port in "${ports[@]}"; do
  for _ in $(seq 100); do
    curl -fso /dev/null "http://127.0.0.1:$port/" && break
    sleep 0.1
  done
done
declare -A most=()
for _ in 1 2 3; do
  for at in "${!names[@]}"; do
    rate=$(taskset -c 1 wrk -t1 -c256 -d"${seconds}s" "http://127.0.0.1:${ports[$at]}/" | awk '/Requests\/sec/ { print int($2) }')
    [ "$rate" -gt "${most[${names[$at]}]:-0}" ] && most[${names[$at]}]=$rate
  done
done
half=$((most[nginx] / 2))
printf '%-10s %12s %10s   p50 and p99 at %s requests/s\n' '' 'requests/s' 'of nginx' "$half"
for at in "${!names[@]}"; do
  name=${names[$at]}
  rm -f "$work/times"
  # 64 connections, each at its share of the rate, whatever the answers take.
  taskset -c 1 h2load --h1 -c64 -t1 --rps $((half / 64)) -D "$seconds" --log-file "$work/times" "http://127.0.0.1:${ports[$at]}/" >/dev/null
  read -r p50 p99 < <(awk '$2 == 200 { print $3 }' "$work/times" | sort -n |
    awk '{ v[NR] = $1 } END { printf "%.2f %.2f\n", v[int(NR * 0.5)] / 1000, v[int(NR * 0.99)] / 1000 }')
  printf '%-10s %12s %9.2fx   %s ms  %s ms  (%s answers)\n' "$name" "${most[$name]}" \
    "$(awk "BEGIN { print ${most[$name]} / ${most[nginx]} }")" "$p50" "$p99" "$(wc -l <"$work/times")"
done
grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //'
