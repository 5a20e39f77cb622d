#!/usr/bin/env bash
# Why: the end-to-end suite deploys to real servers. This brings up three of them and a registry, as
# containers in a network of their own, and takes away exactly what it brought.
#
#   fleet.sh up                  bring up (or back up) the fleet; fleet.json tells where it is
#   fleet.sh down                remove what this state folder's run made
#   fleet.sh reset               every server empty again, the fleet stays up (seconds)
#   fleet.sh status              one line a server
#   fleet.sh cut-ssh NAME        packets of SSH vanish silently, in both ways: a half-open connection
#   fleet.sh restore-ssh NAME
#   fleet.sh reboot NAME         and wait until it is back
#
# State folder: $HANDOVER_E2E_DIR, or target/e2e of this work tree.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=${HANDOVER_E2E_DIR:-$here/../../target/e2e}
mkdir -p "$state"
state=$(cd "$state" && pwd)
servers=(web-1 web-2 web-3)
registry=registry.e2e:5000

# What systemd and a Docker engine need inside a container where --privileged is refused.
flags=(--cap-add SYS_ADMIN --cap-add NET_ADMIN --cap-add SYS_PTRACE
    --security-opt seccomp=unconfined --security-opt apparmor=unconfined
    --cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup:rw -v /var/lib/docker
    --tmpfs /run --tmpfs /run/lock --stop-signal SIGRTMIN+3 --device /dev/fuse)

die() { echo "fleet.sh: $*" >&2; exit 1; }
say() { echo "fleet.sh: $*" >&2; }
container() { cat "$state/containers/$1" 2>/dev/null || die "no $1 here; run: fleet.sh up"; }
address() { sed -n "$1p" "$state/addresses"; } # line 1 is the registry, 2.. the servers
on() { docker exec -i "$(container "$1")" "${@:2}"; }

make_network() {
    # Fixed addresses outlive a reboot, but need a network whose subnet was asked for: let Docker find a
    # free one, then ask for that.
    # (Another run may take it in between: try again.)
    local name=handover-e2e-$run subnet
    for _ in 1 2 3 4 5; do
        docker network create --label "handover-e2e=$run" "$name" >/dev/null
        subnet=$(docker network inspect --format '{{(index .IPAM.Config 0).Subnet}}' "$name")
        docker network rm "$name" >/dev/null
        docker network create --subnet "$subnet" --label "handover-e2e=$run" "$name" >"$state/network" && break
    done
    [[ -s $state/network ]] || die "no free subnet for a network"
    python3 - "$subnet" >"$state/addresses" <<'PY'
import ipaddress, sys
net = ipaddress.ip_network(sys.argv[1])
for last in (10, 11, 12, 13):
    print(net[last])
PY
}

start() { # start NAME ADDRESS [DOCKER FLAG...] -- [COMMAND...]
    local name=$1 address=$2 options=()
    shift 2
    while [[ $1 != -- ]]; do options+=("$1"); shift; done
    shift
    # First created and written down, then started: `down` knows also what did not start.
    docker create --name "handover-e2e-$run-$name" --hostname "$name" --label "handover-e2e=$run" \
        --network "$(<"$state/network")" --ip "$address" "${options[@]}" "$image" "$@" \
        >"$state/containers/$name"
    docker start "$(container "$name")" >/dev/null
}

ready() { # systemd is up, Docker answers; a server that is "degraded" is a broken one, and said
    local deadline=$((SECONDS + 90)) word=
    while :; do
        word=$(on "$1" systemctl is-system-running 2>/dev/null || true)
        [[ $word == running ]] && on "$1" docker version >/dev/null 2>&1 && return
        if [[ $word == degraded ]]; then
            on "$1" systemctl --failed --no-legend >&2
            die "$1 came up degraded"
        fi
        ((SECONDS < deadline)) || die "$1 is not ready after 90 s (systemd says: ${word:-nothing})"
        sleep 0.2
    done
}

write_ssh() {
    : >"$state/known_hosts"
    local n=1 name
    for name in "${servers[@]}"; do
        n=$((n + 1))
        printf '%s %s\n' "$name" "$(on "$name" cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)" >>"$state/known_hosts"
        cat <<CONF
Host $name
    HostName $(address $n)
    HostKeyAlias $name
CONF
    done >"$state/ssh_config"
    cat >>"$state/ssh_config" <<CONF
Host *
    User deploy
    IdentityFile "$state/id_ed25519"
    IdentitiesOnly yes
    UserKnownHostsFile "$state/known_hosts"
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 10
CONF
}

write_json() {
    local port
    port=$(docker port "$(container registry)" 5000/tcp | head -n1)
    python3 - "$state" "$registry" "$port" "${servers[@]}" >"$state/fleet.json.new" <<'PY'
import json, pathlib, sys
state, registry, pushed, *names = sys.argv[1:]
at = pathlib.Path(state)
addresses = (at / "addresses").read_text().split()
container = lambda name: (at / "containers" / name).read_text().strip()
print(json.dumps({
    "network": (at / "network").read_text().strip(),
    "servers": [{"name": n, "address": a, "container": container(n)} for n, a in zip(names, addresses[1:])],
    "registry": {"name": registry, "push": pushed, "container": container("registry")},
    "ssh_config": f"{state}/ssh_config",
}, indent=2))
PY
    mv "$state/fleet.json.new" "$state/fleet.json"
}

up() {
    local began=$SECONDS warm=warm name n
    [[ -f $state/fleet.json ]] || warm=cold
    image=$("$here/image.sh")
    if [[ $warm == warm && $(<"$state/image") != "$image" ]]; then
        say "the server image changed: a new fleet"
        down
        warm=cold
    fi
    if [[ $warm == warm ]]; then
        for name in registry "${servers[@]}"; do
            docker start "$(container "$name")" >/dev/null 2>&1 || warm=cold
        done
        [[ $warm == warm ]] || say "some of the fleet is gone: a new one"
    fi
    if [[ $warm == cold ]]; then
        [[ ! -f $state/run ]] || down # half a fleet
        mkdir -p "$state/containers"
        run=$(tr -d - </proc/sys/kernel/random/uuid | cut -c1-8)
        echo "$run" >"$state/run"
        echo "$image" >"$state/image"
        ssh-keygen -q -t ed25519 -N '' -C handover-e2e -f "$state/id_ed25519"
        make_network
        # The host's engine takes a registry on the loopback for insecure without being told.
        start registry "$(address 1)" -p 127.0.0.1::5000 -v /var/lib/docker-registry -- \
            docker-registry serve /etc/docker/registry/e2e.yml
        n=1
        for name in "${servers[@]}"; do
            n=$((n + 1))
            start "$name" "$(address $n)" "${flags[@]}" --add-host "registry.e2e:$(address 1)" -- /sbin/init
            docker exec -i "$(container "$name")" sh -c 'umask 022; cat >/etc/ssh/e2e_keys' <"$state/id_ed25519.pub"
        done
    fi
    for name in "${servers[@]}"; do ready "$name"; done
    write_ssh
    write_json # the published port is another one after a restart of the registry
    for name in "${servers[@]}"; do
        ssh -F "$state/ssh_config" "$name" docker version --format '{{.Server.Version}}' >/dev/null ||
            die "$name does not let us in by SSH"
    done
    say "up ($warm) in $((SECONDS - began)) s"
    cat "$state/fleet.json"
}

down() {
    # By the run's own label, which also finds what an `up` that was killed had no time to write down.
    local mine
    mine=label=handover-e2e=$(cat "$state/run" 2>/dev/null || echo none)
    docker ps --all --quiet --filter "$mine" | xargs -r docker rm --force --volumes >/dev/null
    docker network ls --quiet --filter "$mine" | xargs -r docker network rm >/dev/null
    rm -rf "$state"/{containers,network,addresses,run,image,images,fleet.json,ssh_config,known_hosts,id_ed25519,id_ed25519.pub}
}

empty() { # empty NAME: what a deploy, a watchdog or a test left there is gone, pulled images too
    on "$1" bash -s <<'SH'
set -eu
iptables -D INPUT -p tcp --dport 22 -j DROP 2>/dev/null || :
iptables -D OUTPUT -p tcp --sport 22 -j DROP 2>/dev/null || :
for unit in /etc/systemd/system/handover-*; do
    [ -e "$unit" ] || continue
    systemctl disable --now --quiet "${unit##*/}" || :
    rm -rf "$unit"
done
systemctl daemon-reload
systemctl reset-failed
# Agents, lock holders and SSH sessions first, or they would write into what is being removed.
pkill -KILL -u deploy,sudoer,nobody-special || :
pkill -KILL -f '^/opt/mythex/' || :
docker ps -aq | xargs -r docker rm --force --volumes >/dev/null
docker system prune --force --all --volumes >/dev/null
rm -rf /opt/mythex /run/mythex /usr/local/bin/handover
install -d -o deploy -g deploy /opt/mythex
install -d -o deploy -g deploy -m 775 /run/mythex
SH
}

reset() {
    local began=$SECONDS name pids=() failed=0
    for name in "${servers[@]}"; do empty "$name" & pids+=($!); done
    for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
    ((failed == 0)) || die "not every server could be emptied"
    say "reset in $((SECONDS - began)) s"
}

status() {
    local name
    for name in "${servers[@]}"; do
        printf '%s  %s  systemd %s  containers %s  current %s\n' "$name" \
            "$(docker inspect --format '{{.State.Status}}' "$(container "$name")")" \
            "$(on "$name" systemctl is-system-running 2>/dev/null || true)" \
            "$(on "$name" docker ps -q 2>/dev/null | wc -l)" \
            "$(on "$name" readlink /opt/mythex/current 2>/dev/null || echo -)"
    done
}

ssh_rule() { # ssh_rule -I|-D NAME
    on "$2" iptables "$1" INPUT -p tcp --dport 22 -j DROP
    on "$2" iptables "$1" OUTPUT -p tcp --sport 22 -j DROP
}
is_cut() { on "$1" iptables -C INPUT -p tcp --dport 22 -j DROP 2>/dev/null; }

case ${1:-} in
reset | status | cut-ssh | restore-ssh | reboot) [[ -f $state/fleet.json ]] || die "no fleet here; run: fleet.sh up" ;;
esac
case ${1:-} in
up | down | reset | status) "$1" ;;
cut-ssh) is_cut "$2" || ssh_rule -I "$2" ;;
restore-ssh) ! is_cut "$2" || ssh_rule -D "$2" ;;
reboot) docker restart --time 60 "$(container "$2")" >/dev/null && ready "$2" ;;
*) die "usage: fleet.sh up|down|reset|status|cut-ssh NAME|restore-ssh NAME|reboot NAME" ;;
esac
