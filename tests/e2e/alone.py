#!/usr/bin/env python3
"""Why: a team with one server has nobody to take its traffic meanwhile. Here its gateway holds what arrives while the api behind it
is deployed to, and hands its listeners over when it is itself; with 100 requests a second, half of them POST, and none lost.

alone.py BINARY [NAME...]   run all cases, or those whose name contains one of the words
"""
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import suite
from suite import sh

SERVER = "web-1"
RATE = 100
# drain.max + shutdown + deadline + stable of deploy.toml below.
BOUND = 5 + 8 + 15 + 2

HOLD = 'by = "hold"\nfile = "/run/mythex/hold"\nhold = { service = "gateway" }\nmax = "5s"'
GATEWAY = """
[gateway]
listen    = "0.0.0.0:8080"
metrics   = "127.0.0.1:9180"
hold_file = "/run/mythex/hold"
drain_file = "/run/mythex/drain"
control   = "/run/mythex/gateway.sock"

[[gateway.host]]
name    = "{host}"
aliases = [{aliases}]
backend = "http://127.0.0.1:8081"
hold    = "50s"

[[gateway.health]]
path  = "/health"
group = "mythex-api"
"""
COMPOSE = """
services:
  api:
    image: registry.e2e:5000/mythex:${TAG:?TAG is not set}
    restart: unless-stopped
    stop_grace_period: 10s
    ports: ["127.0.0.1:8081:8080"]
    environment:
      SERVICE: api
      PORT: "8080"
      SHUTDOWN: "8"
      START_AFTER: "1"
      HANDOVER_RELEASE: ${HANDOVER_RELEASE}
  gateway:
    image: registry.e2e:5000/gateway:${GATEWAY:?GATEWAY is not set}
    restart: unless-stopped
    # Longer than the balancer keeps an idle connection: one that is cut may carry a request.
    stop_grace_period: 75s
    network_mode: host
    command: ["gateway", "--take-over", "-c", "/etc/gateway.toml"]
    volumes:
      - /run/mythex:/run/mythex
      - ./gateway.toml:/etc/gateway.toml:ro
"""


def fronted(text):
    """The suite's deploy.toml, for servers whose gateway stands in front of their api."""
    text = text.replace('env = [".env.production"]\n', "").replace('vars = ["TAG"]', 'vars = ["TAG", "GATEWAY"]')
    text = re.sub(r'\[\[service\]\]\nname = "(orchestrator|publish-worker)".*?\n\n', "", text, flags=re.S)
    text = text.replace('name = "api"\ngroup = "mythex-api"', 'name = "api"').replace("127.0.0.1:8080/version", "127.0.0.1:8081/version")
    gateway = 'name = "gateway"\ngroup = "mythex-api"\nshutdown = "10s"\nverify = { http = "http://127.0.0.1:9180/metrics" }\n'
    return re.sub(r'name = "gateway"\nverify = .*\n', gateway, text)


def of_one(text):
    """The same for one server, which holds."""
    text = re.sub(r'\[drain\]\n.*?\n\n', f"[drain]\n{HOLD}\n\n", fronted(text), flags=re.S)
    # A prober that gives up earlier would count as lost who is only held.
    text = text.replace("rate = 100\n", 'rate = 100\ntimeout = "60s"\n')
    return text[:text.index("[[server]]", text.index("[[server]]") + 1)]


class Client:
    """Requests at a rate of their own, GET and POST in turn, each over a fresh connection: how long the longest took, and what of them
    did not reach the api."""

    def __init__(self, nodes):
        self.nodes, self.over = nodes, threading.Event()
        self.total, self.lost, self.longest = 0, [], 0.0
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True)
        self.thread.start()

    async def run(self):
        begun, count, running = time.monotonic(), 0, set()
        while not self.over.is_set():
            task = asyncio.create_task(self.one(count))
            running.add(task)
            task.add_done_callback(running.discard)
            count += 1
            await asyncio.sleep(max(0, begun + count / RATE - time.monotonic()))
        await asyncio.gather(*running)

    async def one(self, count):
        node = self.nodes[count // 2 % len(self.nodes)]
        body = b"x" * 20_000 if count % 2 else b""
        began = time.monotonic()
        try:
            said = await asyncio.wait_for(self.ask(node, body), 70)
            bad = None if b" 200 " in said.split(b"\r\n")[0] and b'"service": "api"' in said else said[:200]
        except Exception as error:  # whatever it is, the request reached nowhere
            bad = repr(error)
        self.total += 1
        self.longest = max(self.longest, time.monotonic() - began)
        if bad:
            self.lost.append((time.time(), "POST" if body else "GET", bad))

    async def ask(self, node, body):
        host, port = node.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        method = "POST" if body else "GET"
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        writer.write(f"{method} /version HTTP/1.1\r\nHost: {node}\r\nConnection: close\r\n{length}\r\n".encode() + body)
        said = await reader.read()
        writer.close()
        return said

    def since(self, mark):
        return self.total - mark[0], self.lost[mark[1]:]

    def mark(self):
        self.longest = 0.0
        return self.total, len(self.lost)

    def stop(self):
        self.over.set()
        self.thread.join(80)


class World(suite.World):
    """Servers with a gateway of ours in front of their api."""

    servers = [SERVER]

    def __init__(self):
        super().__init__()
        (self.dir / "compose.yaml").write_text(COMPOSE)
        hosts = [node.rsplit(":", 1)[0] for node in self.nodes]
        aliases = ", ".join(f'"{host}"' for host in sorted(set(hosts[1:]) - {hosts[0]}))
        (self.dir / "gateway.toml").write_text(GATEWAY.format(host=hosts[0], aliases=aliases))
        for tag in ("g1", "g2"):
            image_of_the_gateway(self.fleet["registry"]["push"], tag)

    def configure(self):
        super().configure(change=of_one)

    def start(self, *argv, gateway="g1", **more):
        return super().start(*argv, **{**more, "env": {**dict(more.get("env", ())), "GATEWAY": gateway}})


def image_of_the_gateway(registry, tag):
    """The binary and the libraries that it is linked to, and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tmp").mkdir()
        (root / "bin").mkdir()
        sh("cp", suite.BINARY, str(root / "bin/handover"))
        for library in re.findall(r"(/\S+) \(0x", sh("ldd", suite.BINARY).stdout):
            (root / library.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            sh("cp", "-L", library, str(root / library.lstrip("/")))
        tar = subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE)
        name = f"{registry}/gateway:{tag}"
        subprocess.run(["docker", "import", "--change", 'ENTRYPOINT ["/bin/handover"]', "--change", f"ENV LABEL={tag}", "-", name],
                       stdin=tar.stdout, check=True, stdout=subprocess.DEVNULL)
        tar.wait()
    sh("docker", "push", "--quiet", name)
    sh("docker", "image", "rm", name)


class Cases(suite.Base):
    """In order: each case goes on from where the one before left the server."""

    @classmethod
    def setUpClass(cls):
        suite.fleet("up")
        suite.fleet("reset")
        cls.world = World()
        cls.world.load.stop()
        cls.client = None

    @classmethod
    def tearDownClass(cls):
        if cls.client:
            cls.client.stop()
        cls.world.close()

    def deployed(self, tag, gateway):
        mark = self.client.mark()
        before = self.world.containers(SERVER)
        end = suite.End(self.world.start("deploy", tag=tag, gateway=gateway))
        time.sleep(2)
        total, lost = self.client.since(mark)
        if lost:
            print(f"\n{len(lost)} of {total} lost from {lost[0]} to {lost[-1]}; now {time.time():.1f}", file=sys.stderr)
            print("\n".join(json.dumps(e) for e in end.events if e.get("event") in ("step", "requests")), file=sys.stderr)
            print(self.world.on(SERVER, "journalctl", "-u", "docker", "--no-pager", "-n", "30"), file=sys.stderr)
        self.ended(end, 0, "deployed")
        self.assertEqual(lost, [], f"of {total}")
        self.assertGreater(total, RATE * 5)
        requests = end.summary["requests"]
        self.assertEqual((requests["nowhere"], requests["cut_short"]), (0, 0), str(end))
        print(f"\n{tag} {gateway}: {total} requests, 0 lost, the longest {self.client.longest:.2f} s of {BOUND} s at most; "
              f"{end.summary['seconds']:.1f} s", file=sys.stderr)
        self.assertLess(self.client.longest, BOUND)
        self.assertGreater(self.client.longest, 1, "somebody waited")
        self.nothing_beside()
        return before, self.world.containers(SERVER), end

    def nothing_beside(self):
        names = self.world.on(SERVER, "docker", "ps", "-a", "--format", "{{.Names}}").split()
        self.assertEqual(sorted(names), ["mythex-api-1", "mythex-gateway-1"])
        self.assertEqual(self.world.on(SERVER, "sh", "-c", "ls /run/mythex"), "gateway.sock")

    def test_01_the_first_release(self):
        self.ended(suite.End(self.world.start("deploy", "--first", tag="v1")), 0, "deployed")
        self.wait_in_rotation()
        type(self).client = Client(self.world.nodes)
        plan = suite.End(self.world.start("plan", tag="v2"))
        self.ended(plan, 0)
        self.assertEqual(plan.summary["proof"], "hold", plan)
        self.assertEqual(plan.summary["held_seconds_at_most"], BOUND, plan)
        self.nothing_beside()

    def test_02_the_api(self):
        before, after, _ = self.deployed("v2", "g1")
        self.assertNotEqual(before["api"][1], after["api"][1])
        self.assertEqual(before["gateway"][1], after["gateway"][1])

    def test_03_the_gateway_itself(self):
        before, after, end = self.deployed("v2", "g2")
        self.assertNotEqual(before["gateway"][1], after["gateway"][1])
        steps = [e["step"] for e in end.events if e.get("event") == "step" and e["state"] == "proved"]
        self.assertIn("hand_over", steps)

    def test_04_both(self):
        before, after, _ = self.deployed("v1", "g1")
        self.assertNotEqual(before["api"][1], after["api"][1])
        self.assertNotEqual(before["gateway"][1], after["gateway"][1])

    def test_05_a_release_that_never_verifies_is_taken_back_and_nobody_waits_for_ever(self):
        mark = self.client.mark()
        end = suite.End(self.world.start("deploy", tag="v3", gateway="g2"))
        self.ended(end, 5, "rolled_back")
        time.sleep(2)
        total, lost = self.client.since(mark)
        # The previous release comes up behind the same hold: both ways together are within the gateway's 50 s here.
        self.assertEqual(lost, [], f"of {total}")
        print(f"\nrolled back: {total} requests, 0 lost, the longest {self.client.longest:.2f} s", file=sys.stderr)
        self.nothing_beside()

    def test_06_a_deploy_that_dies_in_the_middle_lets_everybody_go(self):
        mark = self.client.mark()
        self.killed_at("stop", "deploy", tag="v2", gateway="g2")
        self.until_free()
        total, lost = self.client.since(mark)
        self.assertEqual(lost, [], f"of {total}")
        self.nothing_beside()
        self.ended(suite.End(self.world.start("deploy", "--start-over", "--wait", "1m", tag="v2", gateway="g2")), 0)
        self.nothing_beside()

    @unittest.skipUnless(os.environ.get("HANDOVER_LONG"), "tests/it/hands_over.rs shows it with a pretended engine")
    def test_07_a_deploy_that_dies_while_the_gateway_hands_over_leaves_one_that_serves(self):
        mark = self.client.mark()
        self.killed_at("hand_over", "deploy", tag="v1", gateway="g1")
        self.until_free()
        total, lost = self.client.since(mark)
        self.assertEqual(lost, [], f"of {total}")
        self.nothing_beside()
        self.ended(suite.End(self.world.start("deploy", "--start-over", "--wait", "1m", tag="v1", gateway="g1")), 0)

    def until_free(self):
        """Until the dead deploy's agent has put things right and freed the lock."""
        for _ in range(240):
            said = self.world.on(SERVER, "sh", "-c", "flock -n /opt/mythex/lock echo free")
            if said == "free":
                return
            time.sleep(0.5)
        self.fail("the lock is held on")


if __name__ == "__main__":
    suite.main(Cases)
