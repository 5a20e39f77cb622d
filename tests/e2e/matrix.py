#!/usr/bin/env python3
"""Why: whatever dies, and wherever, the fleet must go on serving and the deploy must be finished afterwards. Here everything
that can die does, at each step of the handshake, on real servers under load.

matrix.py BINARY [--slice N/M] [--seed S --sample K] [--case WHO:STEP]...

All cases, a slice of them, a sample drawn from a seed, or those that are named. Prints one JSON line a case, and a table at the end.
"""
import argparse
import json
import random
import signal
import sys
import time
from pathlib import Path

import attacks
import suite
from suite import End, fleet

WHO = ["SIGINT", "SIGTERM", "SIGKILL", "agent", "both", "connection", "network"]
STEPS = ["lock", "flip", "out", "settle", "guard_again", "stop", "start", "verify", "switch", "back", "in", "settle_in", "unlock"]
ONE = attacks.ONE


class Matrix(attacks.Attacks):
    """One case a pair; each leaves a fleet that serves."""

    def runTest(self):
        raise NotImplementedError

    def strikes(self, who, process):
        if who in ("SIGINT", "SIGTERM"):
            process.send_signal(getattr(signal, who))
        if who in ("SIGKILL", "both"):
            process.kill()
        if who in ("agent", "both"):
            self.shell("kill -9 " + " ".join(self.agents()))
        if who == "connection":
            # The sshd process of this connection; its agent sees the end of its stdin.
            self.shell("pkill -9 -f '^sshd: [a-z0-9_-]+@notty'")
        if who == "network":
            fleet("cut-ssh", "web-1")
            self.restore.append(lambda: fleet("restore-ssh", "web-1"))

    def case(self, who, step):
        mark, tag, began = self.world.load.mark(), self.other(), time.time()
        process = self.world.start("deploy", *ONE, "--start-over", "--wait", "1m", tag=tag)
        self.at(process, step)
        self.strikes(who, process)
        if who == "network":
            # Longer than the lease: both sides must give up by themselves.
            time.sleep(14)
            fleet("restore-ssh", "web-1")
        end = End(process, within=180)
        self.until("no agent is left", lambda: not self.agents(), 120)
        self.until("the lock is free", lambda: self.shell("flock -n /opt/mythex/lock echo free") == "free", 30)
        self.assertEqual(json.loads(self.shell("cat /opt/mythex/record.json"))["state"], "idle") if who not in ("agent", "both") else None
        left = self.label()
        self.assertLessEqual(len(left), 1, "one release at most")
        if end.code == 0:
            self.assertEqual(left, [tag], str(end))
        if who in ("SIGINT", "SIGTERM"):
            self.assertIn(end.code, (0, {"SIGINT": 130, "SIGTERM": 143}[who]), str(end))
        if who == "connection":
            self.assertEqual(end.code, 0, f"a connection that broke is no reason to fail: {end}")
        if "agent" not in who and who != "both":
            self.wait_in_rotation()
        # Who died without a goodbye keeps the deploy lock for its lease.
        resumed = self.world.run("resume", "--wait", "1m", within=240)
        self.ended(resumed, 0)
        self.wait_in_rotation()
        self.unlocked()
        self.assertEqual(len(self.label()), 1)
        total, lost = self.world.load.since(mark)
        told = {"who": who, "step": step, "exit": end.code, "left": left, "then": resumed.summary.get("outcome"), "requests": total,
                "lost": len(lost), "seconds": round(time.time() - began)}
        print(json.dumps(told), flush=True)
        self.assertEqual(lost, [])
        return told


def main():
    args = argparse.ArgumentParser()
    args.add_argument("binary")
    args.add_argument("--slice", default="1/1")
    args.add_argument("--seed", type=int)
    args.add_argument("--sample", type=int)
    args.add_argument("--case", action="append", help="WHO:STEP; these instead of all")
    args = args.parse_args()
    suite.BINARY = str(Path(args.binary).resolve())
    cases = [(who, step) for step in STEPS for who in WHO]
    if args.case:
        cases = [tuple(case.split(":")) for case in args.case]
    if args.sample:
        cases = random.Random(args.seed).sample(cases, args.sample)
    n, m = map(int, args.slice.split("/"))
    cases = cases[n - 1::m]
    Matrix.setUpClass()
    failed = []
    for who, step in cases:
        test = Matrix()
        try:
            test.setUp()
            test.case(who, step)
        except Exception as error:  # every case is told, and the others are still played
            failed.append((who, step))
            print(json.dumps({"who": who, "step": step, "failed": str(error)[-1500:]}), flush=True)
            test.world.run("deploy", *ONE, "--start-over", "--wait", "1m", tag="v1", within=240)
        finally:
            test.tearDown()
    Matrix.tearDownClass()
    print(f"{len(cases) - len(failed)} of {len(cases)} cases ended as they should", failed or "")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
