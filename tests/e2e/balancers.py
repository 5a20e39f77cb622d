"""Why: the suite asks the same of every balancer. Each class runs one kind of them in front of the real servers and says what
deploy.toml needs to know of it: the simulator that behaves like an ALB, and HAProxy, drained in either of its two ways."""
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

BY_FILE = 'by = "file"\nfile = "/run/mythex/drain"'
DEREGISTER = 'by = "deregister"'
GROUP = """
[balancer]
{balancer}

[[balancer.group]]
name = "mythex-api"
port = 8080
health = {{ path = "/health", interval = "{interval}", timeout = "{timeout}", unhealthy = 2, healthy = 2 }}
"""


class Alb:
    """Two nodes with views of their own, an API that lags, and faults of that API on demand."""

    drain, other_drain = BY_FILE, DEREGISTER
    numbers = 'serve = "4s"\nmax = "60s"\nmargin = "2s"'
    denied = "AccessDenied"

    def __init__(self, binary, world):
        targets = [{"id": f"i-{s['name']}", "address": f"{s['address']}:8080", "zone": "abc"[n]} for n, s in enumerate(world.fleet["servers"])]
        spec = {"nodes": ["a", "b"], "seed": 3, "access_log": str(world.dir / "access.log"), "groups": [
            {"name": "mythex-api", "port": 8080, "path": "/health", "interval": 2, "timeout": 1, "unhealthy": 2, "healthy": 2,
             "deregistration_delay": 10, "targets": targets}], "sources": world.sources}
        (world.dir / "balancer.json").write_text(json.dumps(spec))
        self.process = subprocess.Popen([binary, "lab-balancer", str(world.dir / "balancer.json")], stdout=subprocess.PIPE, text=True, env=world.env)
        first = json.loads(self.process.stdout.readline())
        self.endpoint, self.nodes = first["control_plane"], first["nodes"]

    def tables(self, drain):
        kind = f'kind = "alb"\nregion = "eu-central-1"\nendpoint = "{self.endpoint}"'
        return GROUP.format(balancer=kind, interval="2s", timeout="1s") + 'deregistration_delay = "10s"\n'

    def target(self, server):
        return f"i-{server}"

    def healthy(self):
        return json.loads(urllib.request.urlopen(self.endpoint + "/lab/healthy", timeout=5).read())["healthy"]

    def fault(self, kind, action=None):
        body = json.dumps({"kind": kind, "action": action}).encode()
        urllib.request.urlopen(urllib.request.Request(self.endpoint + "/lab/faults", data=body, method="POST"), timeout=5).read()

    def deny(self):
        self.fault("access_denied")

    def clear(self):
        urllib.request.urlopen(urllib.request.Request(self.endpoint + "/lab/faults", method="DELETE"), timeout=5).read()

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=10)
        truth = json.loads(out.strip().splitlines()[-1])["truth"]
        return {key: truth[key] for key in ("total", "nowhere", "causes")}


CONFIG = """
global
  master-worker
  stats socket {socket} mode 666 level admin expose-fd listeners
defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  timeout check 500ms
  retries 0
frontend front
  bind {front}
  default_backend mythex-api
backend mythex-api
  balance roundrobin
  option httpchk GET /health
  http-check expect status 200
  default-server check inter 1s fall 2 rise 2
{servers}
"""


class Node:
    """One real HAProxy. It repeats nothing (`retries 0`), so that every request that meets a server that is gone is lost."""

    def __init__(self, front, servers, where, run):
        self.front, self.run = front, run
        self.config, self.socket = f"{where}/haproxy.cfg", f"{where}/haproxy.sock"
        lines = "\n".join(f"  server {s['name']} {s['address']}:8080" for s in servers)
        self.write(CONFIG.format(socket=self.socket, front=front, servers=lines))
        self.process = subprocess.Popen(run(["haproxy", "-W", "-db", "-f", self.config]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def write(self, text):
        subprocess.run(self.run(["tee", self.config]), input=text, text=True, check=True, stdout=subprocess.DEVNULL)

    def reload(self):
        """The new worker knows nothing of what the old one was told, and takes every server for healthy."""
        subprocess.run(self.run(["pkill", "-USR2", "-o", "-f", f"haproxy -W -db -f {self.config}"]), check=True)

    def stop(self):
        subprocess.run(self.run(["pkill", "-TERM", "-o", "-f", f"haproxy -W -db -f {self.config}"]), check=False)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Haproxy:
    """One node here, its runtime socket a file; the second, where there are two, on another host, reached by SSH."""

    denied = "runtime socket"
    numbers = 'serve = "2s"\nmax = "20s"\nmargin = "1s"'

    def __init__(self, world, count, drain, other_drain):
        self.drain, self.other_drain = drain, other_drain
        servers = world.fleet["servers"]
        self.here = Node(f"127.0.0.1:{free_port()}", servers, str(world.dir), lambda argv: argv)
        self.link = world.dir / "admin.sock"
        self.workers, self.sockets = [self.here], [str(self.link)]
        if count == 2:
            host = servers[2]
            there = Node(f"{host['address']}:8800", servers, "/run", lambda argv: ["docker", "exec", "-i", host["container"], *argv])
            self.workers.append(there)
            self.sockets.append(f"ssh://{host['name']}{there.socket}")
        self.nodes = [node.front for node in self.workers]
        self.clear()
        for node in self.workers:
            self.wait_for(node)

    def wait_for(self, node):
        host, port = node.front.rsplit(":", 1)
        for _ in range(100):
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise TimeoutError(f"haproxy on {node.front} does not come up")

    def tables(self, drain):
        nodes = ", ".join(f'"{one}"' for one in self.sockets)
        text = GROUP.format(balancer=f'kind = "haproxy"\nnodes = [{nodes}]', interval="1s", timeout="500ms")
        return text + ('deregistration_delay = "10s"\n' if "deregister" in drain else "")

    def target(self, server):
        return server

    def stat(self, node):
        """server -> (status, check) as one node says."""
        if node is self.here:
            with socket.socket(socket.AF_UNIX) as asked:
                asked.connect(node.socket)
                asked.sendall(b"show stat\n")
                text = b"".join(iter(lambda: asked.recv(65536), b"")).decode()
        else:
            ask = f"printf 'show stat\\n' | timeout 5 curl -s --unix-socket {node.socket} telnet://x"
            text = subprocess.run(node.run(["sh", "-c", ask]), text=True, capture_output=True, check=False).stdout
        rows = [line.split(",") for line in text.splitlines()]
        head = {name: n for n, name in enumerate(rows[0])} if rows else {}
        return {row[1]: (row[head["status"]], row[head["check_status"]]) for row in rows if row[0] == "mythex-api" and row[1] != "BACKEND"}

    def healthy(self):
        return all((seen := self.stat(node)) and all(s == "UP" and c.endswith("L7OK") for s, c in seen.values()) for node in self.workers)

    def deny(self):
        """The runtime socket is gone: nothing can be learnt, nothing told."""
        self.link.unlink()

    def clear(self):
        if not self.link.is_symlink():
            os.symlink(self.here.socket, self.link)

    def close(self):
        for node in self.workers:
            node.stop()
        return {"nodes": len(self.workers)}


def named(name, binary, world):
    """`alb`, or `haproxy-flip-1`, `haproxy-flip-2`, `haproxy-state-1`, `haproxy-state-2`: the way to drain, and how many nodes."""
    if name == "alb":
        return Alb(binary, world)
    _, way, count = name.split("-")
    ways = (BY_FILE, DEREGISTER) if way == "flip" else (DEREGISTER, BY_FILE)
    return Haproxy(world, int(count), *ways)
