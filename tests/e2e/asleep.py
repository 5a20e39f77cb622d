#!/usr/bin/env python3
"""Why: a backend that sleeps is a planned absence, on real servers as everywhere: a deploy, the watchdog, a dead deploy and a reboot
meet one, nothing wakes it that should not, and nothing is lost.

asleep.py BINARY [NAME...]   run all cases, or those whose name contains one of the words
"""
import json
import subprocess
import sys
import threading
import time

import suite
from healing import INTERVAL, Cases as Healing
from suite import SERVERS, sh

FRONT = """
[gateway]
listen = "127.0.0.1:8300"
metrics = "127.0.0.1:8301"

[gateway.sleep]
project = "mythex"
dir = "/opt/mythex"

[[gateway.host]]
name = "cms.test"
backend = "http://127.0.0.1:8090"
hold = "50s"
sleep = { services = ["orchestrator"], after = "3s", awake = "1s", start = "15s" }
"""
UNIT = """
[Unit]
After=docker.service
[Service]
ExecStart=/usr/local/bin/handover gateway -c /etc/front.toml
Restart=always
[Install]
WantedBy=multi-user.target
"""


class Cases(suite.Base):
    """In order: each case goes on from where the one before left the fleet. On every server the orchestrator sleeps behind a gateway."""

    setUp, change, until, state, clock, said = (
        Healing.setUp, Healing.change, Healing.until, Healing.state, Healing.clock, Healing.said)
    out_and_in_again = Healing.out_and_in_again

    @classmethod
    def tearDownClass(cls):
        for server in SERVERS:
            gone = "systemctl disable --now --quiet front; rm -f /etc/systemd/system/front.service /etc/front.toml"
            cls.world.on(server, "sh", "-c", gone)
        super().tearDownClass()

    def front(self, server):
        name = next(s["container"] for s in self.world.fleet["servers"] if s["name"] == server)
        sh("docker", "cp", suite.BINARY, f"{name}:/usr/local/bin/handover")
        for path, text in (("/etc/front.toml", FRONT), ("/etc/systemd/system/front.service", UNIT)):
            sh("docker", "exec", "-i", name, "sh", "-c", f"cat > {path}", input=text)
        self.world.on(server, "systemctl", "daemon-reload")
        self.world.on(server, "systemctl", "enable", "--quiet", "front")
        self.world.on(server, "systemctl", "restart", "front")

    def record(self, server):
        return json.loads(self.world.on(server, "cat", "/opt/mythex/asleep/cms.test.json") or "null")

    def log(self, server):
        lines = self.world.on(server, "cat", "/opt/mythex/asleep/cms.test.log").splitlines()
        return [json.loads(line) for line in lines]

    def sleeper(self, server):
        """Whether it runs, and the release that its container is of."""
        label = "label=com.docker.compose.service=orchestrator"
        ids = self.world.on(server, "docker", "ps", "-aq", "--filter", label).split()
        self.assertEqual(len(ids), 1, server)
        seen = json.loads(self.world.on(server, "docker", "inspect", ids[0]))[0]
        release = next(e.split("=", 1)[1] for e in seen["Config"]["Env"] if e.startswith("HANDOVER_RELEASE="))
        return seen["State"]["Running"], release

    def asleep(self, release, servers=SERVERS):
        for server in servers:
            self.assertEqual(self.sleeper(server), (False, release[:12]), server)
            self.assertEqual(self.record(server)["state"], "asleep", server)

    def runs(self, release, servers=SERVERS):
        for server in servers:
            seen = self.world.containers(server)
            self.assertEqual(sorted(seen), ["api", "gateway", "publish-worker"], server)
            self.assertEqual({seen[s][2] for s in ("api", "gateway")}, {release[:12]}, server)
        self.asleep(release, servers)

    def get(self, server):
        ask = ["curl", "-s", "-m", "60", "-H", "host: cms.test", "http://127.0.0.1:8300/version"]
        return json.loads(self.world.on(server, *ask))

    def test_01_it_falls_asleep_and_status_says_so(self):
        end = self.world.run("deploy", "--first", tag="v1")
        self.ended(end, 0, "deployed")
        type(self).v1 = end.summary["release"]
        self.wait_in_rotation()
        for server in SERVERS:
            self.front(server)
        self.ended(self.world.run("install"), 0)
        sleeps = lambda: all((self.record(server) or {}).get("state") == "asleep" for server in SERVERS)
        self.until("all of them sleep", sleeps)
        self.runs(self.v1)
        for server in self.world.run("status").summary["servers"]:
            self.assertEqual(list(server["asleep"]), ["orchestrator"], server["name"])

    def test_02_a_deploy_renews_it_verifies_it_awake_and_leaves_it_asleep(self):
        before = {server: (self.record(server), self.log(server)) for server in SERVERS}
        plan = self.world.run("plan", tag="v2")
        self.ended(plan, 0)
        for server in plan.summary["servers"]:
            self.assertIn("orchestrator", server["asleep"])
            self.assertIn("sleep", [step["step"] for step in server["steps"]])
        mark = self.world.load.mark()
        end = self.world.run("deploy", tag="v2")
        self.ended(end, 0, "deployed")
        self.nothing_lost(mark, end)
        type(self).v2 = end.summary["release"]
        steps = {e["server"]: e.get("detail") for e in end.events
                 if e.get("event") == "step" and (e["step"], e["state"]) == ("sleep", "proved")}
        self.assertEqual(steps, {server: "orchestrator" for server in SERVERS})
        self.runs(self.v2)
        time.sleep(3)
        self.runs(self.v2)
        for server in SERVERS:
            self.assertEqual((self.record(server), self.log(server)), before[server], f"{server}: that was no use")
        self.ended(self.world.run("verify"), 0)
        again = self.world.run("deploy", tag="v2")
        self.ended(again, 0, "unchanged")
        self.unlocked()

    def test_03_the_watchdog_leaves_it_asleep(self):
        mark = self.world.load.mark()
        time.sleep(6 * INTERVAL)
        for server in SERVERS:
            seen = self.state(server)
            self.assertEqual((seen["word"], seen["healed"]), ("fine", {}), server)
        self.runs(self.v2)
        self.nothing_lost(mark)

    def test_04_a_rollback_leaves_it_asleep_too(self):
        mark = self.world.load.mark()
        end = self.world.run("rollback")
        self.ended(end, 0)
        self.nothing_lost(mark, end)
        self.runs(self.v1)
        self.ended(self.world.run("deploy", tag="v2"), 0, "deployed")
        self.runs(self.v2)
        self.nothing_lost(mark)

    def test_05_what_a_dead_deploy_renewed_is_as_before_and_asleep(self):
        mark = self.world.load.mark()
        process = self.world.start("deploy", "--servers", "web-1", tag="v1")
        for line in process.stdout:
            event = json.loads(line)
            if event.get("event") == "step" and event["step"] == "verify" and event["state"] == "began":
                process.kill()
                break
        self.world.on("web-1", "sh", "-c", "kill -9 $(pgrep -f 'handover-[0-9a-f]* agent')")
        process.communicate()
        self.until("the flag is gone", lambda: self.world.on("web-1", "sh", "-c", "[ -e /run/mythex/drain ] && echo yes") == "")
        self.until("it sleeps", lambda: self.sleeper("web-1") == (False, self.v2[:12]), within=30)
        self.wait_in_rotation()
        self.runs(self.v2)
        self.ended(self.world.run("deploy", "--start-over", "--wait", "1m", tag="v2"), 0)
        self.runs(self.v2)
        self.nothing_lost(mark)

    def test_06_a_server_reboots_and_it_sleeps_on(self):
        before = self.log("web-3")
        self.out_and_in_again("web-3", lambda: subprocess.Popen(
            ["bash", str(suite.HERE / "fleet.sh"), "reboot", "web-3"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.until("its gateway is back", lambda: self.world.on("web-3", "systemctl", "is-active", "front") == "active")
        time.sleep(3 * INTERVAL)
        self.runs(self.v2)
        self.assertEqual(self.log("web-3"), before)

    def test_07_the_first_request_wakes_the_release_that_was_deployed(self):
        self.assertEqual(self.get("web-2")["version"], self.v2[:12])
        self.until("it sleeps again", lambda: (self.record("web-2") or {}).get("state") == "asleep")
        kinds = [json.dumps(entry) for entry in self.log("web-2")]
        self.assertIn("woke", kinds[-2])
        self.runs(self.v2)

    def test_07a_the_engine_restarts_and_it_sleeps_on_and_is_woken_after_it(self):
        before = self.log("web-3")
        self.out_and_in_again("web-3", lambda: self.world.on("web-3", "systemctl", "restart", "--no-block", "docker"))
        time.sleep(3 * INTERVAL)
        self.runs(self.v2)
        self.assertEqual(self.log("web-3"), before, "nobody woke it")
        self.assertEqual(self.get("web-3")["version"], self.v2[:12])
        self.until("it sleeps again", lambda: (self.record("web-3") or {}).get("state") == "asleep")
        self.runs(self.v2)

    def test_08_who_asks_in_the_middle_of_a_deploy_is_answered_as_soon_as_it_runs_and_it_stays_awake(self):
        mark = self.world.load.mark()
        process = self.world.start("deploy", "--servers", "web-2", tag="v1")
        answers = []
        asks = threading.Thread(target=lambda: answers.append((self.get("web-2"), time.monotonic())))
        began = started = None
        for line in process.stdout:
            event = json.loads(line)
            if event.get("event") != "step" or event["server"] != "web-2":
                continue
            if (event["step"], event["state"]) == ("stop", "proved"):
                began = time.monotonic()
                asks.start()
            if (event["step"], event["state"]) == ("start", "proved"):
                started = time.monotonic()
                break
        end = suite.End(process)
        ended = time.monotonic()
        self.ended(end, 0, "deployed")
        asks.join(60)
        (answer, answered), = answers
        self.assertEqual(answer["version"], self.v1[:12])
        # From the start on it waits for the app alone; half of its hold is 25 s, and the deploy goes on for longer than this.
        self.assertLess(answered - started, 5, f"asked {started - began:.1f}s before")
        self.assertLess(answered, ended, "nobody waits for the end of the deploy")
        self.nothing_lost(mark, end)
        print(f"\nanswered {answered - began:.1f}s after it was asked, {answered - started:.1f}s after the start, "
              f"{ended - answered:.1f}s before the end", file=sys.stderr)
        slept = [e.get("detail") for e in end.events
                 if e.get("event") == "step" and (e["step"], e["state"]) == ("sleep", "proved")]
        self.assertEqual(slept, [None], "what somebody asked for is not put back")


if __name__ == "__main__":
    suite.main(Cases)
