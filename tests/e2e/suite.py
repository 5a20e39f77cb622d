#!/usr/bin/env python3
"""Why: what users have are real servers. Three of them (systemd, sshd, a Docker engine, Compose), a registry, a
balancer in front, load on all its nodes throughout; and `handover` run as a user runs it.

suite.py BINARY [NAME...]   run all cases, or those whose name contains one of the words

HANDOVER_E2E_BALANCER says which balancer: `alb` (the simulator), or a real HAProxy, see balancers.py.
"""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import balancers
from balancers import BY_FILE

HERE = Path(__file__).resolve().parent
BINARY = None
BALANCER = os.environ.get("HANDOVER_E2E_BALANCER", "alb")
SERVERS = ["web-1", "web-2", "web-3"]
SERVICES = ["api", "orchestrator", "gateway", "publish-worker"]

CONFIG = """
app = "mythex"

[release]
compose = "compose.yaml"
files = ["gateway.toml"]
env = [".env.production"]
vars = ["TAG"]
dir = "/opt/mythex"
keep = 3

[rolling]
stable = "2s"

[lock]
wait = "20s"
lease = "10s"

{tables}
[drain]
{drain}
{numbers}

[[service]]
name = "api"
group = "mythex-api"
verify = {{ http = "http://127.0.0.1:8080/version", json = {{ version = "{{release}}" }} }}
shutdown = "8s"
deadline = "15s"

[[service]]
name = "orchestrator"
verify = {{ http = "http://127.0.0.1:8090/version", json = {{ version = "{{release}}" }} }}
deadline = "15s"

[[service]]
name = "gateway"
verify = {{ http = "http://127.0.0.1:8000/version", json = {{ version = "{{release}}" }} }}
deadline = "15s"

[[service]]
name = "publish-worker"
verify = {{ exec = ["publish-worker", "--self-check"] }}
deadline = "15s"

[measure]
url = "http://{node}/version"
rate = 100
"""


def sh(*argv, check=True, **kwargs):
    return subprocess.run(argv, check=check, text=True, capture_output=True, **kwargs)


def fleet(*argv):
    return sh("bash", str(HERE / "fleet.sh"), *argv)


class Load:
    """Requests to every node, kept-alive and fresh ones, all the time; what did not reach the app is counted."""

    def __init__(self, nodes, rate=25):
        self.nodes, self.gap, self.over = nodes, 1 / rate, threading.Event()
        self.total, self.lost, self.lock = 0, [], threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(n, fresh), daemon=True) for n in nodes for fresh in (True, False)]
        for thread in self.threads:
            thread.start()

    def run(self, node, fresh):
        connection = None
        while not self.over.wait(self.gap):
            try:
                if connection is None or fresh:
                    connection = http.client.HTTPConnection(node, timeout=10)
                connection.request("GET", "/version")
                answer = connection.getresponse()
                body = answer.read()
                bad = None if answer.status == 200 else f"{answer.status} {body[:80]!r}"
            except Exception as error:  # whatever it is, the request reached nowhere
                bad, connection = repr(error), None
            with self.lock:
                self.total += 1
                if bad:
                    self.lost.append((time.time(), node, bad))

    def mark(self):
        with self.lock:
            return self.total, len(self.lost)

    def since(self, mark):
        with self.lock:
            return self.total - mark[0], self.lost[mark[1]:]

    def stop(self):
        self.over.set()


class World:
    """The fleet, the balancer in front of it, a folder as a user has it."""

    servers = SERVERS
    # Addresses of the balancer's nodes, where each is to have one of its own.
    sources = []

    def __init__(self):
        fleet("up")
        sh("bash", str(HERE / "app" / "build.sh"))
        state = Path(os.environ.get("HANDOVER_E2E_DIR", HERE.parent.parent / "target" / "e2e"))
        self.fleet = json.loads((state / "fleet.json").read_text())
        self.fleet["servers"] = [server for server in self.fleet["servers"] if server["name"] in self.servers]
        self.dir = Path(tempfile.mkdtemp(prefix="handover-e2e-"))
        self.env = {**os.environ, "HANDOVER_SSH_CONFIG": self.fleet["ssh_config"], "AWS_ACCESS_KEY_ID": "e2e",
                    "AWS_SECRET_ACCESS_KEY": "e2e", "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "*"}
        self.env.pop("TAG", None)
        self.env["HANDOVER_STATE"] = str(self.dir / "state")
        self.balancer = balancers.named(BALANCER, BINARY, self)
        self.nodes = self.balancer.nodes
        for name in ("compose.yaml", "gateway.toml", ".env.production"):
            (self.dir / name).write_bytes((HERE / "app" / name).read_bytes())
        self.configure()
        self.load = Load(self.nodes)

    def configure(self, drain=None, user=None, change=lambda text: text):
        drain = drain or self.balancer.drain
        real = '' if "deregister" in drain else 'real = "http://127.0.0.1:8080/version"\n'
        text = CONFIG.format(tables=self.balancer.tables(drain), node=self.nodes[0], drain=drain, numbers=real + self.balancer.numbers)
        for n, server in enumerate(SERVERS):
            at = f"{user}@{server}" if user else server
            text += f'\n[[server]]\nname = "{server}"\nssh = "{at}"\ntarget = "{self.balancer.target(server)}"\nzone = "{"abc"[n]}"\n'
        (self.dir / "deploy.toml").write_text(change(text))

    def start(self, *argv, tag=None, env=()):
        env = {**self.env, **dict(env)}
        if tag:
            env["TAG"] = tag
        return subprocess.Popen([BINARY, *argv, "--output", "json"], cwd=self.dir, env=env, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *argv, tag=None, within=300, env=()):
        started = time.time()
        return End(self.start(*argv, tag=tag, env=env), within, started)

    def on(self, server, *argv):
        container = next(s["container"] for s in self.fleet["servers"] if s["name"] == server)
        return sh("docker", "exec", container, *argv, check=False).stdout.strip()

    def containers(self, server):
        """service -> (id, image id, HANDOVER_RELEASE)"""
        ids = self.on(server, "docker", "ps", "-q", "--filter", "label=com.docker.compose.project=mythex").split()
        seen = json.loads(self.on(server, "docker", "inspect", *ids)) if ids else []
        release = lambda c: next((e.split("=", 1)[1] for e in c["Config"]["Env"] if e.startswith("HANDOVER_RELEASE=")), None)
        return {c["Config"]["Labels"]["com.docker.compose.service"]: (c["Id"], c["Image"], release(c)) for c in seen}

    def close(self):
        self.load.stop()
        print("balancer:", BALANCER, self.balancer.close(), file=sys.stderr)


class End:
    """How a run ended: its events, its summary, its exit code."""

    def __init__(self, process, within=300, started=None):
        try:
            self.out, self.err = process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            process.kill()
            self.out, self.err = process.communicate()
            self.err += f"\n(killed after {within} s)"
        self.took = time.time() - (started or time.time())
        self.code = process.returncode
        self.events = [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]
        last = self.events[-1] if self.events else {}
        self.summary = last if last.get("event") == "summary" else {}
        self.message = ((self.summary.get("error") or {}).get("message") or "") + self.err

    def __str__(self):
        tail = "\n".join(self.out.splitlines()[-12:])
        return f"exit {self.code} after {self.took:.1f} s\n{tail}\n{self.err}"


class Base(unittest.TestCase):
    """What every suite on the real fleet needs."""

    longMessage = True

    @classmethod
    def setUpClass(cls):
        # Empty before the balancer looks: it would take what an earlier run left for healthy.
        fleet("up")
        fleet("reset")
        cls.world = World()

    @classmethod
    def tearDownClass(cls):
        cls.world.close()

    def setUp(self):
        self.world.configure()
        self.world.balancer.clear()

    def ended(self, end, code, outcome=None):
        self.assertEqual(end.code, code, str(end))
        self.assertEqual(end.summary.get("exit"), code, str(end))
        if outcome:
            self.assertEqual(end.summary.get("outcome"), outcome, str(end))

    def nothing_lost(self, mark, end=None):
        total, lost = self.world.load.since(mark)
        self.assertEqual(lost, [], f"of {total}")
        self.assertGreater(total, 0)
        if end is not None:
            requests = end.summary["requests"]
            self.assertEqual((requests["nowhere"], requests["cut_short"]), (0, 0), str(end))
            self.assertGreater(requests["served"], 100, str(end))

    def runs(self, release, servers=SERVERS):
        """All four services of each server prove the published image and the release."""
        for server in servers:
            seen = self.world.containers(server)
            self.assertEqual(sorted(seen), sorted(SERVICES), server)
            labels = {self.world.on(server, "docker", "inspect", "-f", "{{.Config.Image}}", seen[s][0]) for s in SERVICES}
            self.assertTrue(all("@sha256:" in label for label in labels), labels)
            releases = {seen[s][2] for s in ("api", "orchestrator", "gateway")}
            self.assertEqual(releases, {release[:12]}, server)

    def killed_at(self, step, *argv, **more):
        """A run that is killed outright as soon as it says that a step began."""
        process = self.world.start(*argv, **more)
        for line in process.stdout:
            event = json.loads(line)
            if event.get("event") == "step" and event["step"] == step and event["state"] == "began":
                process.kill()
                break
        process.communicate()

    def wait_in_rotation(self):
        """Until every node sees every server; what was lost meanwhile was nobody's deploy."""
        for _ in range(120):
            if self.world.balancer.healthy():
                return
            time.sleep(0.25)
        self.fail("the fleet did not become healthy")

    def unlocked(self):
        for server in SERVERS:
            for file in ("lock", "deploy.lock"):
                path = f"/opt/mythex/{file}"
                said = self.world.on(server, "sh", "-c", f"[ ! -e {path} ] || flock -n {path} echo free || echo held")
                self.assertIn(said, ("", "free"), f"{server}: {path} is {said}")


class Cases(Base):
    """In order: each case goes on from where the one before left the fleet."""

    def test_01_first_deploy_onto_empty_servers(self):
        end = self.world.run("deploy", tag="v1")
        self.ended(end, 4, "refused")
        self.assertIn("no target is healthy", end.message)
        end = self.world.run("deploy", "--first", "--name", "one", tag="v1")
        self.ended(end, 0, "deployed")
        type(self).v1 = end.summary["release"]
        self.runs(self.v1)
        self.unlocked()
        mode = self.world.on("web-1", "sh", "-c", "stat -c %a /opt/mythex/releases/*/.env.production")
        self.assertEqual(set(mode.split()), {"600"})

    def test_02_v2_loses_nothing(self):
        self.wait_in_rotation()
        mark = self.world.load.mark()
        process = self.world.start("deploy", tag="v2")
        peaks = self.watch_memory(process)
        end = End(process)
        self.ended(end, 0, "deployed")
        self.nothing_lost(mark, end)
        type(self).v2 = end.summary["release"]
        self.assertNotEqual(self.v2, self.v1)
        self.runs(self.v2)
        self.unlocked()
        self.assertEqual(end.summary["servers"], 3)
        print(f"\nv1 to v2: {end.summary['seconds']:.1f} s against a floor of {end.summary['floor_seconds']:.1f} s; resident: {peaks}", file=sys.stderr)
        if "release" in BINARY:  # what users run; a debug build is three times the size
            self.assertLess(peaks["deploy"], 60, "MB")
            self.assertLess(peaks["agent"], 15, "MB")

    def watch_memory(self, process):
        """The deploying process and the agents, resident at most, in MB."""
        peaks = {"deploy": 0, "agent": 0}

        def watch():
            while process.poll() is None:
                try:
                    status = Path(f"/proc/{process.pid}/status").read_text()
                    peaks["deploy"] = max(peaks["deploy"], int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) // 1024)
                except (OSError, AttributeError):
                    pass
                seen = self.world.on("web-1", "sh", "-c", "for p in $(pgrep -f 'handover.* agent'); do grep VmHWM /proc/$p/status; done")
                for kilobytes in re.findall(r"VmHWM:\s+(\d+)", seen):
                    peaks["agent"] = max(peaks["agent"], int(kilobytes) // 1024)
                time.sleep(1)

        threading.Thread(target=watch, daemon=True).start()
        return peaks

    def test_03_v2_again_touches_nothing(self):
        before = {server: self.world.containers(server) for server in SERVERS}
        mark = self.world.load.mark()
        plan = self.world.run("plan", tag="v2")
        self.ended(plan, 0, "nothing_to_do")
        end = self.world.run("deploy", tag="v2")
        self.ended(end, 0, "unchanged")
        self.nothing_lost(mark)
        self.assertEqual({server: self.world.containers(server) for server in SERVERS}, before)

    def test_04_a_release_that_fails_its_check_is_rolled_back_on_the_first_server(self):
        before = {server: self.world.containers(server) for server in SERVERS[1:]}
        mark = self.world.load.mark()
        end = self.world.run("deploy", tag="v3")
        self.ended(end, 5, "rolled_back")
        self.nothing_lost(mark)
        self.assertEqual(end.summary["error"]["server"], "web-1")
        self.assertEqual(end.summary["error"]["step"], "verify")
        self.assertIn("500", end.summary["error"]["message"])
        self.assertEqual({server: self.world.containers(server) for server in SERVERS[1:]}, before)
        self.runs(self.v2)
        self.unlocked()

    def test_05_two_deploys_at_once(self):
        mark = self.world.load.mark()
        first = self.world.start("deploy", tag="v1")
        for line in first.stdout:
            if json.loads(line).get("event") == "began":
                break
        status = self.world.run("lock", "status")
        self.ended(status, 0)
        self.assertIn("handover deploy", json.dumps(status.summary))
        second = self.world.run("deploy", tag="v2")
        self.ended(second, 3, "refused")
        self.assertIn("handover deploy", second.message)
        self.assertIn("another deploy", second.message)
        patient = self.world.start("deploy", "--wait", "4m", tag="v1")
        end = End(first)
        self.ended(end, 0, "deployed")
        self.ended(End(patient), 0, "unchanged")
        self.nothing_lost(mark, end)
        self.runs(self.v1)

    def test_06_a_server_whose_ssh_is_down(self):
        before = {server: self.world.containers(server) for server in SERVERS}
        mark = self.world.load.mark()
        fleet("cut-ssh", "web-2")
        try:
            end = self.world.run("deploy", tag="v2")
        finally:
            fleet("restore-ssh", "web-2")
        self.ended(end, 4, "refused")
        self.assertLess(end.took, 30)
        self.assertIn("web-2", end.message)
        self.nothing_lost(mark)
        self.assertEqual({server: self.world.containers(server) for server in SERVERS}, before)
        self.unlocked()

    def test_07_the_balancer_denies_access_in_the_middle_of_a_drain(self):
        mark = self.world.load.mark()
        process = self.world.start("deploy", tag="v2")
        for line in process.stdout:
            event = json.loads(line)
            if event.get("event") == "step" and event["step"] == "flip" and event["state"] == "proved":
                self.world.balancer.deny()
                break
        # Who is let go by the balancer itself needs it for the way back: it is there again when that begins.
        for line in process.stdout:
            if json.loads(line).get("course") == "flip_back":
                self.world.balancer.clear()
                break
        end = End(process)
        self.world.balancer.clear()
        self.ended(end, 5)
        self.assertIn(self.world.balancer.denied, end.message)
        self.nothing_lost(mark)
        self.assertEqual(self.world.on("web-1", "sh", "-c", "ls /run/mythex/drain 2>&1 | grep -c cannot"), "1")
        self.runs(self.v1)
        self.unlocked()
        self.wait_in_rotation()

    def test_08_a_user_without_rights_is_told_which(self):
        self.world.configure(user="nobody-special")
        end = self.world.run("deploy", tag="v2")
        self.ended(end, 4, "refused")
        self.assertRegex(end.message, "(?i)docker")
        self.assertIn("/opt/mythex", end.message)

    def test_09_a_user_with_sudo(self):
        mark = self.world.load.mark()
        self.world.configure(user="sudoer", change=lambda text: text.replace("[balancer]", "[ssh]\nsudo = true\n\n[balancer]", 1))
        end = self.world.run("verify")
        self.ended(end, 0)
        self.nothing_lost(mark)

    def test_10_the_users_own_flock_excludes_the_deploy(self):
        holder = subprocess.Popen(["docker", "exec", next(s["container"] for s in self.world.fleet["servers"] if s["name"] == "web-1"),
                                   "flock", "/opt/mythex/lock", "sleep", "60"])
        time.sleep(1)
        try:
            mark = self.world.load.mark()
            self.world.configure(change=lambda text: text.replace('wait = "20s"', 'wait = "3s"'))
            end = self.world.run("deploy", tag="v2")
            self.ended(end, 3)
            self.assertIn("flock", end.message)
            self.nothing_lost(mark)
        finally:
            self.world.on("web-1", "pkill", "sleep")
            holder.wait(10)
        self.runs(self.v1)

    def test_11_a_freeze(self):
        self.ended(self.world.run("lock", "acquire", "-m", "the auditors are here"), 0)
        end = self.world.run("deploy", tag="v2")
        self.ended(end, 3, "refused")
        self.assertIn("the auditors are here", end.message)
        self.ended(self.world.run("lock", "release"), 0)

    def test_12_a_pull_that_fails_says_what_the_registry_said(self):
        end = self.world.run("deploy", tag="nope")
        self.ended(end, 4, "refused")
        self.assertIn("manifest unknown", end.message)
        self.runs(self.v1)

    def test_13_the_first_sigint_undoes_and_frees_the_locks(self):
        mark = self.world.load.mark()
        process = self.world.start("deploy", tag="v2")
        for line in process.stdout:
            event = json.loads(line)
            if event.get("event") == "step" and event["step"] == "settle" and event["state"] == "began":
                process.send_signal(signal.SIGINT)
                break
        end = End(process)
        self.ended(end, 130, "interrupted")
        self.nothing_lost(mark)
        self.runs(self.v1)
        self.unlocked()
        self.wait_in_rotation()

    def test_14_a_deploy_that_is_killed_while_drained_is_flipped_back_by_the_agent(self):
        mark = self.world.load.mark()
        self.killed_at("settle", "deploy", tag="v2")
        if self.world.balancer.drain != BY_FILE:
            return self.the_next_deploy_lets_it_in_again(mark)
        for _ in range(60):
            if self.world.on("web-1", "sh", "-c", "[ -e /run/mythex/drain ] && echo yes") == "":
                break
            time.sleep(0.5)
        self.assertEqual(self.world.on("web-1", "sh", "-c", "[ -e /run/mythex/drain ] && echo yes"), "")
        self.nothing_lost(mark)
        self.runs(self.v1)
        self.wait_in_rotation()
        self.unlocked()

    def the_next_deploy_lets_it_in_again(self, mark):
        """What only the balancer was told no agent can undo; nothing is lost meanwhile.

        The killed deploy's agents keep its locks for a lease: they wait for it to come back."""
        self.assertFalse(self.world.balancer.healthy())
        end = self.world.run("deploy", "--start-over", "--wait", "2m", tag="v1", within=180)
        self.ended(end, 0)
        self.wait_in_rotation()
        self.nothing_lost(mark)
        self.runs(self.v1)
        self.unlocked()

    def test_14a_what_broke_off_is_told_and_resumed(self):
        if self.world.balancer.drain != BY_FILE:
            self.skipTest("case 14 has started over")
        before = {server: self.world.containers(server) for server in SERVERS}
        mark = self.world.load.mark()
        end = self.world.run("deploy", tag="v1")
        self.ended(end, 4, "refused")
        self.assertIn("broke off", end.message)
        self.assertIn("handover resume", end.summary["error"]["hint"])
        self.assertEqual({server: self.world.containers(server) for server in SERVERS}, before)
        self.unlocked()
        self.assertIn("broke off", self.world.run("plan", tag="v2").out)
        end = self.world.run("resume")
        self.ended(end, 0, "deployed")
        # Killed at the very moment: the last lines may not have been written yet.
        self.assertRegex(end.out, "by the journal `(flip|out)` had ended")
        self.nothing_lost(mark, end)
        self.runs(self.v2)
        self.unlocked()
        again = self.world.run("resume")
        self.ended(again, 0, "unchanged")

    def test_14b_rollback_asks_no_registry_and_history_tells_all(self):
        if self.world.balancer.drain != BY_FILE:
            self.skipTest("case 14 has started over")
        listed = self.world.run("rollback", "--list")
        self.ended(listed, 0)
        names = {r["release"]: r["servers"]["web-1"]["names"] for r in listed.summary["releases"] if "web-1" in r["servers"]}
        self.assertEqual((names[self.v2], names[self.v1]), (["current"], ["previous"]))
        registry = self.world.fleet["registry"]["container"]
        mark = self.world.load.mark()
        sh("docker", "stop", registry)
        try:
            end = self.world.run("rollback")
        finally:
            sh("docker", "start", registry)
        self.ended(end, 0, "deployed")
        self.assertEqual(end.summary["release"], self.v1)
        self.nothing_lost(mark, end)
        self.runs(self.v1)
        self.unlocked()
        again = self.world.run("rollback")
        self.ended(again, 4, "refused")
        self.assertIn("rolled back", again.message)
        # A machine that has never deployed knows as much: the servers have it.
        with tempfile.TemporaryDirectory() as nothing:
            history = self.world.run("history", env={"HANDOVER_STATE": nothing})
        self.ended(history, 0)
        told = [(d["what"], d["outcome"]) for d in history.summary["deploys"]]
        self.assertEqual(told[:3], [("handover rollback", "deployed"), ("handover resume", "deployed"), ("handover deploy", "not_ended")])
        self.assertEqual(history.summary["deploys"][0]["requests"]["nowhere"], 0)
        here = self.world.run("history", "--local")
        self.assertEqual([d["run"] for d in here.summary["deploys"]][:3], [d["run"] for d in history.summary["deploys"]][:3])

    def is_out(self, server):
        """Neither the balancer sends it anything, nor does a killed agent's end bring it back."""
        self.assertEqual(self.world.on(server, "sh", "-c", "[ -e /opt/mythex/absence.json ] && echo yes"), "yes")
        if self.world.balancer.drain == BY_FILE:
            self.assertEqual(self.world.on(server, "sh", "-c", "[ -e /run/mythex/drain ] && echo yes"), "yes")
        self.assertFalse(self.world.balancer.healthy())

    def test_14c_a_drained_server_runs_on_out_of_rotation_and_comes_back_verified(self):
        self.wait_in_rotation()
        mark, before = self.world.load.mark(), self.world.containers("web-2")
        end = self.world.run("drain", "web-2", "-m", "a new disk", "--until", "2h")
        self.ended(end, 0, "drained")
        self.is_out("web-2")
        self.assertEqual(self.world.containers("web-2"), before)
        again = self.world.run("drain", "web-2", "-m", "and a new fan")
        self.ended(again, 0, "drained")
        self.assertIn("a new disk", again.out)
        self.is_out("web-2")
        end = self.world.run("deploy", "--servers", "web-2", tag="v3")
        self.ended(end, 5)
        self.is_out("web-2")
        end = self.world.run("undrain", "web-2")
        self.ended(end, 0, "undrained")
        self.wait_in_rotation()
        self.assertEqual(self.world.on("web-2", "sh", "-c", "[ -e /opt/mythex/absence.json ] && echo yes"), "")
        self.ended(self.world.run("undrain", "web-2"), 0, "unchanged")
        self.nothing_lost(mark)
        self.unlocked()
        told = [(d["what"], d["outcome"]) for d in self.world.run("history").summary["deploys"]]
        self.assertEqual(told[:2], [("handover undrain web-2", "unchanged"), ("handover undrain web-2", "undrained")])

    def test_14d_what_does_not_pass_its_check_stays_out(self):
        self.ended(self.world.run("drain", "web-3", "-m", "broken"), 0, "drained")
        container = self.world.containers("web-3")["orchestrator"][0]
        self.world.on("web-3", "docker", "stop", container)
        end = self.world.run("undrain", "web-3")
        self.ended(end, 5, "rolled_back")
        self.assertIn("orchestrator", end.message)
        self.is_out("web-3")
        self.world.on("web-3", "docker", "start", container)
        self.ended(self.world.run("undrain", "web-3"), 0, "undrained")
        self.wait_in_rotation()
        self.unlocked()

    def test_14e_a_drain_that_is_killed_is_flipped_back_before_its_record_and_left_out_after_it(self):
        if self.world.balancer.drain != BY_FILE:
            self.skipTest("what only the balancer was told no agent can undo")
        mark = self.world.load.mark()
        self.killed_at("settle", "drain", "web-1")
        self.wait_in_rotation()
        self.assertEqual(self.world.on("web-1", "sh", "-c", "[ -e /opt/mythex/absence.json ] && echo yes"), "")
        self.assertIn("broke off", self.world.run("plan", tag="v1").out)
        self.ended(self.world.run("drain", "web-1", "--wait", "1m"), 0, "drained")
        self.killed_at("verify", "undrain", "web-1")
        time.sleep(12)
        self.is_out("web-1")
        self.ended(self.world.run("undrain", "web-1", "--wait", "1m"), 0, "undrained")
        self.wait_in_rotation()
        self.nothing_lost(mark)
        self.unlocked()

    def test_15_part_of_the_fleet(self):
        mark = self.world.load.mark()
        end = self.world.run("deploy", "--servers", "web-2", tag="v2")
        self.ended(end, 0, "deployed")
        self.nothing_lost(mark, end)
        self.runs(self.v2, ["web-2"])
        self.runs(self.v1, ["web-1", "web-3"])

    def test_16_the_other_way_to_drain(self):
        mark = self.world.load.mark()
        self.world.configure(drain=self.world.balancer.other_drain)
        end = self.world.run("deploy", "--servers", "web-1", tag="v2")
        self.ended(end, 0, "deployed")
        self.nothing_lost(mark, end)
        self.runs(end.summary["release"], ["web-1"])

    def test_17_adoption_of_what_was_started_by_hand(self):
        fleet("reset")
        for server in SERVERS:
            container = next(s["container"] for s in self.world.fleet["servers"] if s["name"] == server)
            sh("docker", "exec", container, "mkdir", "-p", "/home/deploy/app", "/run/mythex")
            for name in ("compose.yaml", "gateway.toml", ".env.production"):
                sh("docker", "cp", str(HERE / "app" / name), f"{container}:/home/deploy/app/{name}")
            sh("docker", "exec", "-e", "TAG=v1", "-e", "HANDOVER_RELEASE=by-hand", "-w", "/home/deploy/app", container,
               "docker", "compose", "-p", "mythex", "up", "-d")
        self.wait_in_rotation()
        before = self.world.containers("web-1")
        mark = self.world.load.mark()
        end = self.world.run("deploy", tag="v3")
        self.ended(end, 5, "rolled_back")
        self.nothing_lost(mark)
        seen = self.world.containers("web-1")
        self.assertEqual({s: c[1] for s, c in seen.items()}, {s: c[1] for s, c in before.items()}, "the adopted images run again")
        self.wait_in_rotation()
        mark = self.world.load.mark()
        end = self.world.run("deploy", tag="v2")
        self.ended(end, 0, "deployed")
        self.nothing_lost(mark, end)
        self.runs(self.v2)
        self.unlocked()

    def test_18_a_reload_of_haproxy_in_the_middle_of_a_drain(self):
        if not isinstance(self.world.balancer, balancers.Haproxy):
            self.skipTest("an ALB forgets nothing")
        self.wait_in_rotation()
        mark = self.world.load.mark()
        runs_v1 = self.world.containers("web-1")["api"][2] == self.v1[:12]
        process = self.world.start("deploy", "--servers", "web-1", tag="v2" if runs_v1 else "v1")
        for line in process.stdout:
            event = json.loads(line)
            if event.get("event") == "step" and event["step"] == "settle" and event["state"] == "began":
                for node in self.world.balancer.workers:
                    node.reload()
                break
        end = End(process)
        # It waits until the new worker knows, or finds the server in rotation again just before the stop and lets it be.
        self.assertIn(end.code, (0, 5), str(end))
        if end.code == 5:
            self.assertIn("back in rotation", end.message)
        # The old worker closes idle connections, which a client that never tries again may notice: none of the deploy's doing.
        answered = [loss for loss in self.world.load.since(mark)[1] if "RemoteDisconnected" not in loss[2] and "ConnectionReset" not in loss[2]]
        self.assertEqual(answered, [])
        self.assertEqual((end.summary["requests"]["nowhere"], end.summary["requests"]["cut_short"]), (0, 0), str(end))
        self.wait_in_rotation()

    def told(self):
        """What the team's own commands wrote down: hook, server, outcome, exit."""
        path = self.world.dir / "told"
        lines = [tuple(line.split(" ")) for line in path.read_text().splitlines()] if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    @unittest.skipUnless(os.environ.get("HANDOVER_LONG"), "its parts are shown one by one in tests/it")
    def test_19_what_is_run_once_and_the_teams_own_commands(self):
        self.wait_in_rotation()
        hook = self.world.dir / "hook"
        hook.write_text('#!/bin/sh\necho "$HANDOVER_HOOK $HANDOVER_SERVER $HANDOVER_OUTCOME $HANDOVER_EXIT" >> told\n')
        hook.chmod(0o755)
        names = ("pre_connect", "pre_deploy", "pre_drain", "post_server", "post_deploy", "on_failure")
        hooks = "\n[hooks]\n" + "".join(f'{name} = {{ run = ["./hook"] }}\n' for name in names)
        once = lambda word: f'\n[[run_once]]\nname = "migrate"\nservice = "orchestrator"\nrun = ["{word}"]\n'
        tag = "v2" if self.world.containers("web-1")["api"][2] == self.v1[:12] else "v1"
        before = {server: self.world.containers(server) for server in SERVERS}
        mark = self.world.load.mark()
        # In a new container there is no such mark to remove: it ends with 1.
        self.world.configure(change=lambda text: text + once("--well") + hooks)
        end = self.world.run("deploy", tag=tag)
        self.ended(end, 5, "failed")
        self.assertIn("run_once `migrate` ended with exit code 1", end.message)
        self.assertEqual({server: self.world.containers(server) for server in SERVERS}, before)
        self.assertEqual([line[0] for line in self.told()], ["pre_connect", "pre_deploy", "on_failure"])
        self.unlocked()
        self.world.configure(change=lambda text: text + once("--sick") + hooks)
        end = self.world.run("deploy", tag=tag)
        self.ended(end, 0, "deployed")
        ran = lambda end: [e["server"] for e in end.events if e.get("step") == "run_once" and e["state"] == "proved"]
        self.assertEqual(ran(end), ["web-1"])
        each = [(hook, server) for server in SERVERS for hook in ("pre_drain", "post_server")]
        self.assertEqual([line[:2] for line in self.told()], [("pre_connect", ""), ("pre_deploy", ""), *each, ("post_deploy", "")])
        self.runs(end.summary["release"])
        self.assertEqual(self.world.on("web-1", "docker", "ps", "-aq", "--filter", "name=mythex-once"), "")
        back = self.world.run("rollback", "--skip-hooks")
        self.ended(back, 0, "deployed")
        again = self.world.run("deploy", "--skip-hooks", tag=tag)
        self.ended(again, 0, "deployed")
        self.assertEqual((ran(back), ran(again), self.told()), ([], [], []))
        self.nothing_lost(mark)
        self.unlocked()


def main(cases=Cases):
    global BINARY
    BINARY = str(Path(sys.argv[1]).resolve())
    words = sys.argv[2:]
    names = [n for n in unittest.TestLoader().getTestCaseNames(cases) if not words or any(w in n for w in words)]
    suite = unittest.TestSuite(cases(name) for name in names)
    result = unittest.TextTestRunner(verbosity=2, failfast=True).run(suite)
    print(f"{result.testsRun - len(result.failures) - len(result.errors)} passed, {len(result.failures) + len(result.errors)} failed")
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
