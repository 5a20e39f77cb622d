#!/usr/bin/env python3
"""Why: a promise that is kept in the tests somebody thought of is kept only there. Thousands of deploys are simulated with
faults from seeds; and each protection is left out in turn, to see that the simulation would notice.

simulate.py BINARY [RUNS]    (10,000 where nothing is said; HANDOVER_LONG=1 plays 100,000, and 10,000 for each protection)
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONG = os.environ.get("HANDOVER_LONG") == "1"
PROTECTIONS = ["guard", "out", "settle", "settle-in", "verify", "fence", "dead-man"]
# With the drain proved node by node there is one more, and the settle is waited for where there is no proof.
COUNTED = ["nodes"]
# So many runs find the absence of each; those that need more find it in few of many.
ENOUGH = {"guard": 3000, "fence": 2000, "verify": 1500}


def simulated(binary, runs, *more, file="deploy.toml"):
    began = time.time()
    command = [binary, "-c", file, "rehearse", "--simulate", str(runs), "--output", "json", *more]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["event"] == "summary" and summary["exit"] == done.returncode, summary
    return done.returncode, summary, time.time() - began


def main():
    binary = str(Path(sys.argv[1]).resolve())
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000 if LONG else 10_000
    code, summary, took = simulated(binary, runs)
    for violation in summary["violations"][:20]:
        print(json.dumps(violation))
    print(f"{summary['simulated']} deploys with faults in {took:.0f} s: {len(summary['violations'])} promises not kept", flush=True)
    assert (code, summary["simulated"], summary["violations"]) == (0, runs, [])
    with tempfile.TemporaryDirectory() as folder:
        counted = Path(folder) / "deploy.toml"
        text = (ROOT / "deploy.toml").read_text()
        assert text.count('by     = "file"') == 1
        counted.write_text(text.replace('by     = "file"', 'by     = "gateway"'))
        code, summary, took = simulated(binary, runs // 5, file=str(counted))
        print(f"{summary['simulated']} drained by the gateway in {took:.0f} s: {len(summary['violations'])} promises not kept", flush=True)
        assert (code, summary["simulated"], summary["violations"]) == (0, runs // 5, [])
        left_out(binary, COUNTED, str(counted))
    left_out(binary, PROTECTIONS, "deploy.toml")


def left_out(binary, protections, file):
    for protection in protections:
        count = 10_000 if LONG else ENOUGH.get(protection, 400)
        code, summary, took = simulated(binary, count, "--without", protection, file=file)
        seeds = sorted({violation["seed"] for violation in summary["violations"]})
        promises = sorted({violation["promise"] for violation in summary["violations"]})
        print(f"without {protection}: {len(seeds)} of {count} runs show it, the first is seed {seeds[:1]}, promises {promises}, {took:.0f} s", flush=True)
        assert code == 1 and seeds, protection
        for violation in summary["violations"]:
            assert {"seed", "promise", "step", "server"} <= set(violation), violation
        # The same seed is the same run, alone too.
        _, again, _ = simulated(binary, 1, "--seed", str(seeds[0]), "--without", protection, file=file)
        assert again["violations"] == [v for v in summary["violations"] if v["seed"] == seeds[0]], again


if __name__ == "__main__":
    main()
