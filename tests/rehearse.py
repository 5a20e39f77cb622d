#!/usr/bin/env python3
"""Why: the rehearsal is the main job on anybody's machine, so it is run whole, as a person runs it, and watched from outside.

rehearse.py BINARY
"""
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINARY = None
# A machine that does other things beside needs a lower speed.
STORY = os.environ.get("HANDOVER_STORY", "").split()


def start(*argv, **kwargs):
    return subprocess.Popen([BINARY, "rehearse", "--output", "json", *argv], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, **kwargs)


def events(process):
    for line in process.stdout:
        yield json.loads(line)


def end(process, within=150):
    out, err = process.communicate(timeout=within)
    lines = [json.loads(line) for line in out.splitlines()]
    return lines, lines[-1], err


def until(process, **wanted):
    for event in events(process):
        if all(event.get(key) == value for key, value in wanted.items()):
            return event
    raise AssertionError(f"it ended without {wanted}: {process.stderr.read()}")


def ask(node, path="/version"):
    connection = http.client.HTTPConnection(node, timeout=5)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status


def children_of(lab):
    return [p for p in (s["pid"] for s in lab["services"]) if os.path.exists(f"/proc/{p}")]


class Rehearsal(unittest.TestCase):
    def test_the_main_job_loses_nothing_within_90_seconds(self):
        began = time.time()
        lines, summary, err = end(start())
        took = time.time() - began
        self.assertEqual(summary["exit"], 0, err)
        self.assertEqual((summary["outcome"], summary["servers"]), ("deployed", 3))
        requests, truth = summary["requests"], summary["truth"]
        self.assertGreaterEqual(requests["total"], 2000)
        self.assertEqual((requests["nowhere"], requests["cut_short"], truth["nowhere"]), (0, 0, 0))
        self.assertLessEqual(requests["total"], truth["total"])
        self.assertEqual(requests["total"], sum(v for k, v in requests.items() if k != "total"))
        ratio = summary["seconds"] / summary["floor_seconds"]
        self.assertLessEqual(ratio, 1.10)
        self.assertLess(took, 90)
        self.assertEqual(lines[0]["event"], "lab")
        self.assertEqual(len(lines[0]["services"]), 12)
        self.assertEqual(children_of(lines[0]), [], "services outlived the lab")
        print(f"\nrehearse: {took:.1f} s on the wall, {requests['total']} requests, ratio {ratio:.2f}, delay {summary['delay_ms']}", file=sys.stderr)

    def test_proved_node_by_node_it_needs_no_settle(self):
        text = (ROOT / "deploy.toml").read_text()
        self.assertEqual(text.count('by     = "file"'), 1)
        file = ROOT / "deploy.by-gateway.toml"
        file.write_text(text.replace('by     = "file"', 'by     = "gateway"'))
        try:
            lines, summary, err = end(start("-c", str(file)))
        finally:
            file.unlink()
        self.assertEqual(summary["exit"], 0, err)
        self.assertEqual((summary["requests"]["nowhere"], summary["truth"]["nowhere"]), (0, 0))
        self.assertEqual((summary["floor"]["settle_out"], summary["floor"]["settle_in"]), (0, 0), "a settle was waited for")
        ratio = summary["seconds"] / summary["floor_seconds"]
        self.assertLessEqual(ratio, 1.10)
        # Word plus settle: interval + timeout + margin, twice a server, above the same floor.
        self.assertLessEqual(summary["seconds"], 0.6 * (summary["floor_seconds"] + 3 * 2 * 17))
        nodes = [line for line in lines if line["event"] == "nodes"]
        self.assertEqual({line["server"] for line in nodes}, {"web-1", "web-2", "web-3"})
        self.assertEqual({len({node["address"] for node in line["nodes"]}) for line in nodes}, {3})
        print(f"\nnode by node: {summary['seconds']:.1f} s, floor {summary['floor_seconds']:.1f} s, ratio {ratio:.2f}", file=sys.stderr)

    def test_one_server_is_deployed_to_behind_a_gateway_that_holds(self):
        file = str(ROOT / "examples/one-server/deploy.toml")
        for argv in (["check", "-c", file], ["gateway", "--check", "-c", str(ROOT / "examples/one-server/gateway.toml")]):
            said = subprocess.run([BINARY, *argv], text=True, capture_output=True)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        lines, summary, err = end(start("-c", file))
        self.assertEqual(summary["exit"], 0, err)
        self.assertEqual((summary["outcome"], summary["servers"]), ("deployed", 1))
        self.assertEqual((summary["requests"]["nowhere"], summary["truth"]["nowhere"]), (0, 0))
        self.assertGreater(summary["requests"]["served"], 100)
        steps = [line["step"] for line in lines if line["event"] == "step" and line["state"] == "proved"]
        for step in ("flip", "out", "back", "hand_over"):
            self.assertIn(step, steps)
        self.assertNotIn("settle", steps)
        gateways = subprocess.run(["pgrep", "-f", "handover gateway --take-over -c /tmp/"], text=True, capture_output=True).stdout.split()
        self.assertEqual(gateways, [], "a gateway outlived the lab")

    def as_it_is_told(self, deploys):
        """Of (name, outcome, lost, not 200, left behind) each: fewer from deploy to deploy, none in the last, and the wrong measure never finds none."""
        names, outcomes, lost, not_200, left = zip(*deploys)
        self.assertEqual(names, ("as it was", "watchdog mended", "handshake right"))
        self.assertEqual(set(outcomes), {"deployed"})
        self.assertTrue(lost[0] > lost[1] > lost[2] == 0, lost)
        self.assertTrue(all(wrong > right for wrong, right in zip(not_200, lost)), (not_200, lost))
        self.assertEqual(["gateway" in what for what in left], [True, False, False])

    def test_the_story_goes_as_it_is_told(self):
        began = time.time()
        _, summary, err = end(start("--story", *STORY))
        took = time.time() - began
        self.assertEqual(summary["exit"], 0, err)
        self.as_it_is_told([(run["name"], run["outcome"], run["requests"]["nowhere"] + run["requests"]["cut_short"], run["not_200"], json.dumps(run["missing"])) for run in summary["runs"]])
        self.assertEqual(summary["runs"][0]["missing"], {"web-2": ["gateway"]})
        self.assertEqual([run["missing"] for run in summary["runs"][1:]], [{}, {}])
        if not STORY:
            self.assertLess(took, 120)
        print(f"\nstory: {took:.1f} s on the wall, {[(run['lost'], run['not_200']) for run in summary['runs']]}", file=sys.stderr)

    def test_the_figures_of_the_story_are_as_it_is_told(self):
        rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in (ROOT / "docs/story.md").read_text().splitlines() if line.startswith("| ")][2:]
        number = lambda text: int(text.replace(",", ""))
        self.as_it_is_told([(name, outcome, number(lost), number(not_200), left) for name, outcome, _, lost, not_200, left in rows])

    def test_the_naive_way_loses_what_the_balancers_own_log_says(self):
        process = start("--naive")
        _, summary, err = end(process)
        self.assertEqual(process.returncode, 7, err)
        self.assertGreater(summary["requests"]["nowhere"], 0)
        self.assertEqual(summary["requests"]["nowhere"], summary["truth"]["nowhere"])

    def test_a_client_of_ones_own_is_counted_in_the_truth(self):
        process = start("--serve", "--speed", "10")
        lab = until(process, event="lab")
        sent = 0
        for _ in range(30):
            for node in lab["nodes"]:
                self.assertEqual(ask(node), 200)
                sent += 1
        process.send_signal(signal.SIGINT)
        _, summary, err = end(process)
        self.assertEqual(summary["exit"], 0, err)
        self.assertEqual((summary["truth"]["total"], summary["truth"]["nowhere"]), (sent, 0))

    def test_a_service_killed_by_hand_is_seen(self):
        process = start("--speed", "10")
        lab = until(process, event="lab")
        until(process, event="step", server="web-1", step="settle", state="began")
        victim = next(s for s in lab["services"] if s["server"] == "web-2" and s["service"] == "api")
        os.kill(victim["pid"], signal.SIGKILL)
        lines, summary, err = end(process)
        self.assertNotEqual(summary["exit"], 0, err)
        self.assertGreater(summary["truth"]["nowhere"], 0)
        self.assertEqual(children_of(lab), [])

    def test_a_release_that_fails_its_check_is_rolled_back_without_a_loss(self):
        process = start("--speed", "10", "--fail", "web-2:api")
        _, summary, err = end(process)
        self.assertEqual(process.returncode, 5, err)
        self.assertEqual((summary["outcome"], summary["error"]["server"], summary["error"]["step"]), ("rolled_back", "web-2", "verify"))
        self.assertEqual(summary["truth"]["nowhere"], 0)
        self.assertEqual(summary["each"], {"web-1": "deployed", "web-2": "rolled_back", "web-3": "untouched"})

    def test_a_pipeline_gets_its_summary_and_its_annotation(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "summary.md"
            env = {**os.environ, "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page)}
            done = subprocess.run([BINARY, "rehearse", "--speed", "10", "--fail", "web-1:api", "--output", "plain"], cwd=ROOT, text=True, capture_output=True, env=env)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertEqual(len([line for line in done.stderr.splitlines() if line.startswith("::error title=handover::web-1: ")]), 1, done.stderr)
            text = page.read_text()
        self.assertTrue(text.startswith("### handover: rolled back "), text)
        self.assertIn("| web-1 | rolled back |", text)
        self.assertNotIn("\x1b", done.stderr + done.stdout, "piped output has no escape codes")

    def test_halt_leaves_the_failed_server_out_and_asks_for_a_hand(self):
        halted = (ROOT / "deploy.toml").read_text().replace('on_failure  = "rollback"', 'on_failure  = "halt"')
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "deploy.toml").write_text(halted)
            process = start("--speed", "10", "--fail", "web-1:api", "-c", f"{folder}/deploy.toml")
            _, summary, err = end(process)
        self.assertEqual((process.returncode, summary["outcome"]), (6, "needs_hand"), err)
        self.assertIn("handover deploy --servers web-1", summary["error"]["hint"])
        self.assertEqual(summary["truth"]["nowhere"], 0)

    def test_each_signal_undoes_and_has_its_own_code(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = start("--speed", "10")
            until(process, event="step", step="settle", state="began")
            process.send_signal(number)
            lines, summary, err = end(process)
            self.assertEqual((process.returncode, summary["exit"], summary["outcome"]), (code, code, "interrupted"), err)
            self.assertEqual(summary["truth"]["nowhere"], 0)

    def test_a_speed_that_the_machine_cannot_keep_is_no_pass(self):
        process = start("--speed", "2000")
        _, summary, err = end(process)
        self.assertEqual((process.returncode, summary["exit"]), (1, 1), err)

    def test_a_reader_that_goes_away_does_not_leave_the_lab_behind(self):
        process = start("--speed", "10")
        lab = json.loads(process.stdout.readline())
        process.stdout.close()
        process.wait(timeout=120)
        self.assertEqual(children_of(lab), [])

    def test_a_lab_that_is_killed_takes_its_services_with_it(self):
        process = start("--serve")
        lab = until(process, event="lab")
        process.kill()
        process.communicate()
        deadline = time.time() + 10
        while children_of(lab) and time.time() < deadline:
            time.sleep(0.2)
        self.assertEqual(children_of(lab), [])


if __name__ == "__main__":
    BINARY = str(Path(sys.argv[1]).resolve())
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
