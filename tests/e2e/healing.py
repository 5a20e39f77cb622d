#!/usr/bin/env python3
"""Why: self-healing on real servers under traffic: what is installed, what is healed and after how many looks, what a deploy, a
restart of the engine and a reboot meet.

healing.py BINARY [NAME...]   run all cases, or those whose name contains one of the words
"""
import json
import os
import re
import subprocess
import sys
import time

import suite
from suite import HERE, SERVERS, fleet, sh

UNITS = [f"handover-mythex-{part}.service" for part in ("early", "bootstrap", "watchdog")]
INTERVAL = 2


class Cases(suite.Base):
    """In order: each case goes on from where the one before left the fleet."""

    def setUp(self):
        self.change(lambda text: text)
        self.world.balancer.clear()

    def change(self, change, interval=INTERVAL):
        table = f'[watchdog]\ninterval = "{interval}s"\nstrikes = 4\ntextfile = "/run/handover.prom"\n\n[measure]'
        sudo = lambda text: text.replace("[balancer]", "[ssh]\nsudo = true\n\n[balancer]", 1).replace("[measure]", table, 1)
        self.world.configure(user="sudoer", change=lambda text: change(sudo(text)))

    def state(self, server):
        return json.loads(self.world.on(server, "cat", "/opt/mythex/watchdog.json") or "{}")

    def said(self, server, since):
        return self.world.on(server, "journalctl", "-q", "-o", "cat", "-u", UNITS[2], "--since", f"@{since}").splitlines()

    def clock(self, server):
        return self.world.on(server, "date", "+%s.%N")

    def until(self, what, done, within=90, gap=0.25):
        end = time.time() + within
        while time.time() < end:
            seen = done()
            if seen:
                return seen
            time.sleep(gap)
        self.fail(f"not within {within} s: {what}")

    def container(self, server, service):
        return self.world.on(server, "docker", "ps", "-aq", "--filter", f"label=com.docker.compose.service={service}").split()[0]

    def healed(self, server, service, since):
        """Until the watchdog says that it healed it; the strikes that it counted before."""
        self.until(f"{server} heals {service}", lambda: any(l.startswith(f"{service}: release") for l in self.said(server, since)))
        strikes = [int(n) for n in re.findall(rf"^{service}: strike (\d) of 4", "\n".join(self.said(server, since)), re.M)]
        return strikes

    def test_01_install(self):
        end = self.world.run("deploy", "--first", tag="v1")
        self.ended(end, 0, "deployed")
        type(self).v1 = end.summary["release"]
        self.wait_in_rotation()
        end = self.world.run("install")
        self.ended(end, 0)
        self.assertTrue(all(end.summary["servers"][server] for server in SERVERS))
        both = [suite.End(process) for process in [self.world.start("install") for _ in range(2)]]
        self.assertEqual({end.code for end in both} - {0, 3}, set(), f"one waits for the other, or is told: {both[0]} {both[1]}")
        again = self.world.run("install")
        self.ended(again, 0)
        self.assertEqual(again.summary["servers"], {server: [] for server in SERVERS})
        for server in SERVERS:
            units = " ".join(f"/etc/systemd/system/{unit}" for unit in UNITS)
            self.assertEqual(self.world.on(server, "sh", "-c", f"systemd-analyze verify {units} 2>&1"), "")
            self.assertEqual(self.world.on(server, "systemctl", "is-active", UNITS[2]), "active")
        self.until("the watchdogs look", lambda: all(self.state(server).get("word") == "fine" for server in SERVERS))
        status = self.world.run("status")
        self.ended(status, 0)
        for server in status.summary["servers"]:
            self.assertEqual((server["watchdog"]["state"], server["drift"], server["missing"]), ("fine", [], []), server)
            self.assertEqual([t["state"] for t in server["targets"]], ["healthy"])
        metrics = self.world.on("web-1", "cat", "/run/handover.prom")
        self.assertIn('handover_watchdog_state{server="web-1",state="fine"} 1', metrics)

    def test_02_small_between_looks(self):
        began = float(self.clock("web-1")) + 1
        pid = self.world.on("web-1", "systemctl", "show", "-P", "MainPID", UNITS[2])
        resident = int(re.search(r"VmRSS:\s+(\d+)", self.world.on("web-1", "cat", f"/proc/{pid}/status")).group(1)) / 1024
        print(f"\nwatchdog: {resident:.1f} MB resident", file=sys.stderr)
        if "release" in suite.BINARY:
            self.assertLess(resident, 15, "MB")
        self.change(lambda text: text, interval=60)
        self.ended(self.world.run("install", "--servers", "web-1"), 0)
        self.until("it has looked", lambda: self.state("web-1").get("at", 0) > began)
        time.sleep(2)
        pid = self.world.on("web-1", "systemctl", "show", "-P", "MainPID", UNITS[2])
        ticks = lambda: sum(int(n) for n in self.world.on("web-1", "cat", f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[11:15])
        before = ticks()
        time.sleep(20)
        self.assertLessEqual(ticks() - before, 2, "hundredths of a second in 20 s: 0.1 % of a core")
        self.change(lambda text: text)
        self.ended(self.world.run("install", "--servers", "web-1"), 0)

    def test_03_a_killed_container_comes_back_after_four_failed_looks(self):
        since = self.clock("web-1")
        killed = time.time()
        self.world.on("web-1", "docker", "kill", self.container("web-1", "api"))
        self.assertEqual(self.healed("web-1", "api", since), [1, 2, 3, 4])
        self.assertGreaterEqual(time.time() - killed, 3 * INTERVAL)
        self.runs(self.v1)
        self.wait_in_rotation()
        mark = self.world.load.mark()
        time.sleep(2)
        self.nothing_lost(mark)
        self.assertEqual(self.state("web-1")["healed"], {"api": 1})
        self.unlocked()

    def test_04_what_runs_but_fails_its_check_is_made_anew(self):
        since, before = self.clock("web-2"), self.container("web-2", "orchestrator")
        mark = self.world.load.mark()
        self.world.on("web-2", "docker", "exec", before, "app", "--sick")
        self.assertEqual(self.healed("web-2", "orchestrator", since), [1, 2, 3, 4])
        self.assertNotEqual(self.container("web-2", "orchestrator"), before)
        self.runs(self.v1)
        self.nothing_lost(mark)

    def test_05_three_failures_and_a_success_heal_nothing(self):
        since, container = self.clock("web-3"), self.container("web-3", "orchestrator")
        for _ in range(2):
            began = self.clock("web-3")
            self.world.on("web-3", "docker", "exec", container, "app", "--sick")
            self.until("the third strike", lambda: any("strike 3 of 4" in line for line in self.said("web-3", began)), gap=0.1)
            self.world.on("web-3", "docker", "exec", container, "app", "--well")
            self.until("it is fine", lambda: self.state("web-3")["word"] == "fine")
        self.assertEqual(self.container("web-3", "orchestrator"), container)
        self.assertEqual(self.state("web-3")["healed"], {})
        self.assertNotIn("strike 4", "\n".join(self.said("web-3", since)))

    def test_06_a_deploy_that_takes_longer_than_the_strikes_sees_no_heal(self):
        since = {server: self.clock(server) for server in SERVERS}
        before = {server: self.state(server)["healed"] for server in SERVERS}
        mark = self.world.load.mark()
        end = self.world.run("deploy", tag="v2")
        self.ended(end, 0, "deployed")
        self.nothing_lost(mark, end)
        type(self).v2 = end.summary["release"]
        self.runs(self.v2)
        self.assertGreater(end.summary["seconds"] / 3, 4 * INTERVAL)
        for server in SERVERS:
            self.assertEqual(self.state(server)["healed"], before[server])
            self.assertTrue(any("planned work is going on" in line for line in self.said(server, since[server])), server)

    def test_07_the_old_watchdog_meets_the_same_deploy(self):
        """One strike, no lock, as in the story: it starts what the deploy has stopped."""
        up = "docker compose -p mythex -f /opt/mythex/current/compose.resolved.json --env-file /dev/null up -d --no-deps api"
        # Who holds the lock, and how far he has come, at the moment at which it acts all the same.
        seen = "flock -n /opt/mythex/lock true || echo under a held lock: $(tr -d '\\n ' < /opt/mythex/record.json | grep -o '\"state\":[^,]*')"
        script = f"while sleep 0.2; do docker ps --format '{{{{.Names}}}}' | grep -q mythex-api || {{ {seen}; {up}; }}; done"
        self.world.on("web-1", "systemd-run", "--unit=old-watchdog", "bash", "-c", script)
        process = self.world.start("deploy", "--servers", "web-1", tag="v1")
        journal = lambda: self.world.on("web-1", "journalctl", "-q", "-o", "cat", "-u", "old-watchdog")
        try:
            # The incident: what the deploy has just stopped is started under its hands.
            incident = r"under a held lock: .*(stopped|started)[\s\S]*mythex-api-1 +Start"
            self.until("it starts the api in the middle of the deploy", lambda: re.search(incident, journal()))
            self.assertIsNone(process.poll())
        finally:
            self.world.on("web-1", "systemctl", "stop", "old-watchdog")
        end = suite.End(process)
        print(f"\nthe deploy beside it: exit {end.code}, {end.summary.get('outcome')}", file=sys.stderr)
        end = self.world.run("deploy", "--start-over", tag="v2")
        self.ended(end, 0)
        self.runs(self.v2)
        self.wait_in_rotation()

    def test_08_a_killed_deploy_is_put_right_by_the_watchdog(self):
        process = self.world.start("deploy", "--servers", "web-1", tag="v1")
        for line in process.stdout:
            event = json.loads(line)
            if event.get("event") == "step" and event["step"] == "settle" and event["state"] == "began":
                process.kill()
                break
        self.world.on("web-1", "sh", "-c", "kill -9 $(pgrep -f 'handover-[0-9a-f]* agent')")
        process.communicate()
        self.until("the flag is gone", lambda: self.world.on("web-1", "sh", "-c", "[ -e /run/mythex/drain ] && echo yes") == "")
        self.wait_in_rotation()
        self.runs(self.v2)
        self.assertIn("flipped back", self.world.on("web-1", "cat", "/opt/mythex/record.json"))
        self.ended(self.world.run("deploy", "--start-over", "--wait", "1m", tag="v2"), 0)

    def test_08a_what_is_drained_for_nobody_comes_back_once_everything_works(self):
        self.wait_in_rotation()
        mark = self.world.load.mark()
        self.world.on("web-3", "sh", "-c", "touch /run/mythex/drain; sed -i 's/\"drained\": false/\"drained\": true/' /opt/mythex/record.json")
        self.until("the flag is gone", lambda: self.world.on("web-3", "sh", "-c", "[ -e /run/mythex/drain ] && echo yes") == "", within=30)
        self.nothing_lost(mark)
        self.assertIn('"drained": false', self.world.on("web-3", "cat", "/opt/mythex/record.json"))

    def out_and_in_again(self, server, act):
        """What is lost is lost while the balancer has not noticed yet; once it has, nothing more is, on the way back least of all."""
        self.wait_in_rotation()
        act()
        self.until("the balancer has noticed", lambda: not self.world.balancer.healthy(), within=30, gap=0.05)
        time.sleep(2)  # its nodes decide one by one
        mark = self.world.load.mark()
        self.until("it is back", self.world.balancer.healthy, within=120)
        time.sleep(3)
        self.nothing_lost(mark)
        self.runs(self.v2)
        self.assertEqual(self.world.on(server, "sh", "-c", "[ -e /run/mythex/drain ] && echo yes"), "")
        self.assertIn("verified and let back", self.world.on(server, "journalctl", "-q", "-o", "cat", "-u", UNITS[1], "-n", "5"))
        self.unlocked()

    def test_09_the_engine_restarts(self):
        self.out_and_in_again("web-2", lambda: self.world.on("web-2", "systemctl", "restart", "--no-block", "docker"))

    def test_09a_an_engine_that_dies_is_not_kept_waiting_by_a_bootstrap_that_had_failed(self):
        self.wait_in_rotation()
        self.world.on("web-2", "sh", "-c", f"systemctl restart --no-block {UNITS[1]}; sleep 0.4; systemctl kill -s KILL {UNITS[1]}")
        self.until("it has failed", lambda: self.world.on("web-2", "systemctl", "is-active", UNITS[1]) == "failed")
        self.until("the watchdog has put it right", lambda: '"state": "idle"' in self.world.on("web-2", "cat", "/opt/mythex/record.json"))
        self.wait_in_rotation()
        self.world.on("web-2", "sh", "-c", "kill -9 $(pidof dockerd)")
        self.until("the engine is back", lambda: self.world.on("web-2", "systemctl", "is-active", "docker") == "active", within=20)
        self.until("bootstrap has verified it", lambda: self.world.on("web-2", "systemctl", "is-active", UNITS[1]) == "active", within=40)
        self.wait_in_rotation()
        self.runs(self.v2)
        self.unlocked()

    def test_09b_what_a_person_drained_by_hand_is_his_to_let_back(self):
        flag = lambda: self.world.on("web-2", "cat", "/run/mythex/drain")
        self.world.on("web-2", "sh", "-c", "echo 'ann: its disk is changed' > /run/mythex/drain")
        since = self.clock("web-2")
        self.world.on("web-2", "docker", "kill", self.container("web-2", "api"))
        self.healed("web-2", "api", since)
        self.assertEqual(flag(), "ann: its disk is changed", "after a heal")
        self.world.on("web-2", "systemctl", "restart", "docker")
        self.until("bootstrap has ended", lambda: self.world.on("web-2", "systemctl", "is-active", UNITS[1]) == "active")
        self.assertEqual(flag(), "ann: its disk is changed", "after a restart of the engine")
        status = {one["name"]: one for one in self.world.run("status").summary["servers"]}["web-2"]
        self.assertTrue(status["by_hand"], status)
        self.ended(self.world.run("undrain", "web-2"), 0, "undrained")
        self.assertEqual(flag(), "")
        self.wait_in_rotation()

    def test_09c_a_watchdog_that_takes_another_lock_stands_in_the_way_of_a_deploy(self):
        self.change(lambda text: text.replace("[lock]", '[lock]\npath = "/opt/mythex/another-lock"', 1))
        for run in (("deploy",), ("drain", "web-1")):
            end = self.world.run(*run, tag="v1")
            self.ended(end, 4, "refused")
            self.assertIn("another-lock", end.message)
        self.ended(self.world.run("install"), 0)
        self.ended(self.world.run("drain", "web-1"), 0, "drained")
        self.ended(self.world.run("undrain", "web-1"), 0, "undrained")
        self.change(lambda text: text)
        self.ended(self.world.run("install"), 0)

    def test_10_a_server_reboots(self):
        self.out_and_in_again("web-3", lambda: subprocess.Popen(
            ["bash", str(HERE / "fleet.sh"), "reboot", "web-3"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def test_11_what_was_taken_out_stays_out_over_a_reboot(self):
        self.wait_in_rotation()
        mark = self.world.load.mark()
        end = self.world.run("drain", "web-2", "-m", "its disk is changed")
        self.ended(end, 0, "drained")
        self.nothing_lost(mark)
        fleet("reboot", "web-2")
        self.until("bootstrap has spoken", lambda: "left out on purpose" in self.world.on(
            "web-2", "journalctl", "-q", "-b", "-o", "cat", "-u", UNITS[1]))
        time.sleep(2 * INTERVAL)
        self.assertEqual(self.world.on("web-2", "cat", "/run/mythex/drain"), "drained by handover")
        self.assertEqual(self.state("web-2")["word"], "absent")
        status = {one["name"]: one for one in self.world.run("status").summary["servers"]}["web-2"]
        self.assertEqual(status["absence"]["reason"], "its disk is changed")
        self.assertEqual([t["state"] for t in status["targets"]], ["unhealthy"])
        self.nothing_lost(mark)
        end = self.world.run("undrain", "web-2")
        self.ended(end, 0, "undrained")
        self.nothing_lost(mark)
        self.wait_in_rotation()

    def test_12_after_the_ceiling_it_is_given_up_and_said(self):
        self.world.on("web-1", "rm", "-f", "/run/gave-up")
        self.change(lambda text: text.replace("strikes = 4", 'strikes = 1\nheals = 2\nwindow = "10m"\n'
                                              'on_give_up = ["sh", "-c", "echo $HANDOVER_SERVER $HANDOVER_SERVICES > /run/gave-up"]'), interval=1)
        self.ended(self.world.run("install", "--servers", "web-1"), 0)
        sick = 'while sleep 0.1; do docker exec $(docker ps -q --filter label=com.docker.compose.service=orchestrator) app --sick; done'
        self.world.on("web-1", "systemd-run", "--unit=sick", "bash", "-c", sick)
        try:
            self.until("it gives up", lambda: self.world.on("web-1", "cat", "/run/gave-up") == "web-1 orchestrator", within=150)
        finally:
            self.world.on("web-1", "systemctl", "stop", "sick")
        self.assertEqual(self.state("web-1")["healed"]["orchestrator"], 2)
        status = {one["name"]: one for one in self.world.run("status").summary["servers"]}["web-1"]
        self.assertTrue(status["watchdog"]["services"]["orchestrator"]["given_up"], status)
        self.change(lambda text: text)
        self.ended(self.world.run("install"), 0)

    def test_13_remove(self):
        end = self.world.run("install", "--remove")
        self.ended(end, 0)
        for server in SERVERS:
            self.assertEqual(self.world.on(server, "sh", "-c", "ls /etc/systemd/system | grep handover"), "")
            self.assertEqual(self.world.on(server, "pgrep", "-f", "handover watchdog"), "")
        self.runs(self.v2, ["web-2", "web-3"])
        self.ended(self.world.run("install", "--remove"), 0)

    def test_14_a_user_who_may_not_is_told_what_to_do(self):
        self.world.configure()
        end = self.world.run("install", "--servers", "web-1")
        self.ended(end, 1)
        self.assertIn("ssh.sudo = true", end.summary["error"]["hint"])

    def test_15_an_engine_of_another_name_is_refused_with_what_to_do(self):
        unit = self.world.on("web-1", "systemctl", "show", "-P", "FragmentPath", "docker.service")
        # Of an init script systemd would make a unit of that name, whatever the script is called.
        moved = {unit: "/root/docker.service", "/etc/init.d/docker": "/root/docker.init"}
        away = " && ".join(f"mv {path} {other}" for path, other in moved.items())
        again = " && ".join(f"mv {other} {path}" for path, other in moved.items())
        self.world.on("web-1", "sh", "-c", f"{away} && systemctl daemon-reload")
        try:
            end = self.world.run("install", "--servers", "web-1")
        finally:
            self.world.on("web-1", "sh", "-c", f"{again} && systemctl daemon-reload")
        self.ended(end, 1)
        self.assertIn("systemd knows no docker.service here", end.message)
        self.assertIn("bootstrap --early", json.dumps(end.summary))
        self.assertEqual(self.world.on("web-1", "sh", "-c", "ls /etc/systemd/system | grep handover"), "")


if __name__ == "__main__":
    suite.main(Cases)
