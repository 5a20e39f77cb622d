"""Why: what is rendered for the first mode is run by programs of other people, so theirs are asked: a real Caddy holds, a real Prometheus
scrapes and records. Of the cluster only the adapter and the HPA are played, by the rules that were measured on a real control plane.

python3 tests/kubernetes/suite.py BINARY CADDY [TEST...]"""

import http.client
import http.server
import json
import math
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BINARY, CADDY = "", ""
HOST = "cms.example.org"


def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(*args, check=True, cwd=None):
    done = subprocess.run(args, capture_output=True, text=True, cwd=cwd)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, args))}: {done.stdout}{done.stderr}")
    return done


def until(what, is_so, most=30):
    end = time.monotonic() + most
    while not (found := is_so()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.1)
    return found


class Backend(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    got = []

    def do_GET(self):
        self.answer(b"page")

    def do_POST(self):
        if self.headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["content-length"]))
        self.answer(str(len(body)).encode())

    def answer(self, body):
        self.got.append((self.command, self.path))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Cluster:
    """Caddy and Prometheus with what was rendered; adapter and HPA by their rules; the pod is a server that comes and goes."""

    def __init__(self, defaults, tenant, start):
        self.work = pathlib.Path(tempfile.mkdtemp())
        self.edge, self.metrics, self.backend, self.prometheus = port(), port(), port(), port()
        self.start_takes, self.replicas, self.pod, self.history, self.events = start, 0, None, [], []
        tenants = self.work / "tenants"
        tenants.mkdir()
        defaults = defaults.replace('"edge.edge.svc:9180"', f'"127.0.0.1:{self.metrics}"')
        defaults = defaults.replace("[edge]", f"[edge]\nport = {self.edge}\ntls = false")
        (tenants / "defaults.toml").write_text(defaults)
        (tenants / "example.toml").write_text(tenant)
        run(BINARY, "sleep", "render", "--mode", "k1", "--tenants", tenants, "--out", self.work / "out")
        out = self.work / "out"
        caddyfile = (out / "caddy/Caddyfile").read_text()
        # There is no cluster whose name service knows the Service, and one of this machine's ports is the admin API's.
        changed = caddyfile.replace("app-backend.tenant-example.svc:8443", f"127.0.0.1:{self.backend}")
        assert changed != caddyfile
        (self.work / "Caddyfile").write_text(changed.replace("{\n\tmetrics", "{\n\tadmin off\n\tmetrics", 1))
        config = (out / "prometheus/scrape.yaml").read_text() + "rule_files: [out/prometheus/wake.rules.yaml]\n"
        (self.work / "prometheus.yml").write_text(config)
        self.hpa = (out / "example/hpa.yaml").read_text()
        self.adapter = (out / "adapter/config.yaml").read_text()
        self.target = float(re.search(r'averageValue: "([0-9]+)m"', self.hpa)[1])
        self.window = float(re.search(r"scaleDown:\n +stabilizationWindowSeconds: ([0-9]+)", self.hpa)[1])
        self.log = open(self.work / "log", "w")
        self.processes = [
            self.spawn(CADDY, "run", "--config", self.work / "Caddyfile", "--adapter", "caddyfile"),
            self.spawn(
                "prometheus", f"--config.file={self.work}/prometheus.yml", f"--storage.tsdb.path={self.work}/data",
                f"--web.listen-address=127.0.0.1:{self.prometheus}",
            ),
        ]
        self.over = threading.Event()
        until("the signal is recorded", lambda: self.metric() is not None, 60)

    def spawn(self, *args):
        return subprocess.Popen(list(map(str, args)), stdout=self.log, stderr=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        for process in self.processes:
            process.terminate()
            process.wait(20)
        if self.pod:
            self.pod.shutdown()
            self.pod.server_close()
        self.log.close()
        shutil.rmtree(self.work)

    def query(self, text):
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/query?query={urllib.parse.quote(text)}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)["data"]["result"]
        except OSError:
            return []

    def metric(self):
        """The adapter: a name that discovery finds, the selector's labels as matchers, thousandths cut off. In thousandths, or None."""
        series = re.search(r'seriesQuery: "(.*)"', self.adapter)[1].replace('\\"', '"')
        if not self.query(series):
            return None
        key, value = re.search(r"matchLabels:\n +(\S+): (\S+)", self.hpa).groups()
        question = re.search(r'metricsQuery: "(.*)"', self.adapter)[1]
        found = self.query(question.replace("<<.LabelMatchers>>", f'{key}="{value}"'))
        return sum(int(float(item["value"][1]) * 1000) for item in found) if found else None

    def scale(self, sync):
        """The HPA: a look every period, up at once, down when nothing of the window wants a pod; never more than one pod."""
        while not self.over.wait(sync):
            value, now = self.metric(), time.monotonic()
            if value is None:
                continue
            wanted = min(1, math.ceil(value / self.target))
            self.history = [(at, was) for at, was in self.history if now - at < self.window] + [(now, wanted)]
            wanted = max(wanted, max(was for _, was in self.history) if self.replicas else wanted)
            if wanted != self.replicas:
                self.replicas = wanted
                self.events.append((now, wanted))
                if wanted:
                    threading.Timer(self.start_takes, self.up).start()
                else:
                    self.pod.shutdown()
                    self.pod.server_close()
                    self.pod = None

    def up(self):
        self.pod = http.server.ThreadingHTTPServer(("127.0.0.1", self.backend), Backend)
        self.pod.daemon_threads = True
        threading.Thread(target=self.pod.serve_forever, daemon=True).start()

    def ask(self, method="GET", path="/", body=None, host=HOST, chunked=False):
        connection = http.client.HTTPConnection("127.0.0.1", self.edge, timeout=100)
        began = time.monotonic()
        connection.request(method, path, body=body, headers={"host": host}, encode_chunked=chunked)
        answer = connection.getresponse()
        status, text = answer.status, answer.read().decode()
        connection.close()
        return status, text, time.monotonic() - began

    def at_once(self, *asked):
        answers = [None] * len(asked)

        def one(at, what):
            answers[at] = self.ask(**what)

        threads = [threading.Thread(target=one, args=pair) for pair in enumerate(asked)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers


def files():
    return [(ROOT / "tenants" / name).read_text() for name in ("defaults.toml", "example.toml")]


QUICK = [
    ("30m", "20s"),
    ('scrape   = "5s"', 'scrape = "1s"'),
    ('evaluate = "5s"', 'evaluate = "1s"'),
    ('window   = "2m"', 'window = "10s"'),
    ('latch    = "30s"', 'latch = "6s"'),
    ('every = "60s"', 'every = "2s"'),
]


def quick():
    """The example with numbers that let a night pass in a minute."""
    made = []
    for text in files():
        for old, new in QUICK:
            text = text.replace(old, new)
        made.append(text)
    return made


class Rules(unittest.TestCase):
    def test_01_the_rendered_files_are_taken_by_those_who_read_them_and_each_alarm_fires_when_it_should(self):
        with tempfile.TemporaryDirectory() as work:
            run(BINARY, "sleep", "render", "--out", work, cwd=ROOT)
            out = pathlib.Path(work)
            run("promtool", "check", "config", out / "prometheus/scrape.yaml")
            for name in ("wake.rules.yaml", "alerts.rules.yaml"):
                run("promtool", "check", "rules", out / "prometheus" / name)
            shutil.copy(HERE / "alerts.test.yml", out / "prometheus")
            run("promtool", "test", "rules", "alerts.test.yml", cwd=out / "prometheus")
            tested = (HERE / "alerts.test.yml").read_text()
            for name in re.findall(r"- alert: (\S+)", (out / "prometheus/alerts.rules.yaml").read_text()):
                self.assertIn(f"alertname: {name}, exp_alerts: []", tested, f"{name} is not shown silent")
                fires = f"alertname: {name}\n        exp_alerts:\n          - exp_labels"
                self.assertIn(fires, tested, f"{name} is not shown to fire")
            adapted = run(CADDY, "adapt", "--config", out / "caddy/Caddyfile", "--pretty")
            self.assertNotIn("not formatted", adapted.stderr)
            fixtures = ROOT / "tests/it/fixtures/sleep-story"
            self.assertEqual(adapted.stdout, (fixtures / "rendered-caddy.json").read_text(), "write it anew")
            told = run(CADDY, "adapt", "--config", fixtures / "Caddyfile", "--pretty").stdout
            self.assertEqual(told, (fixtures / "caddy.json").read_text(), "write it anew")

    def test_02_what_is_rendered_is_found_right_as_if_somebody_had_written_it(self):
        with tempfile.TemporaryDirectory() as work:
            run(BINARY, "sleep", "render", "--out", work, cwd=ROOT)
            files = [path for path in pathlib.Path(work).rglob("*") if path.is_file()]
            more = ["--caddy", CADDY, "--start", "12s", "--probes", "0.0167", "--output", "json"]
            read = json.loads(run(BINARY, "sleep", "check", *files, *more).stdout)
            own = json.loads(run(BINARY, "sleep", "check", "--output", "json", cwd=ROOT).stdout)
            self.assertEqual(read["faults"], [])
            sides = [
                {one["id"]: (one["left_seconds"], one["right_seconds"]) for one in found["invariants"]} for found in (read, own)
            ]
            # The adapter's flags are none of its configuration, and a rate is rounded where it is given.
            for left_out in ("tenant-relist-covers-scrape", "tenant-age-covers-relist", "tenant-probes-below-floor"):
                self.assertTrue(all(side.pop(left_out) for side in sides))
            self.assertEqual(*sides)

    def test_03_the_files_of_the_story_have_their_faults_through_caddy_itself(self):
        fixtures = ROOT / "tests/it/fixtures/sleep-story"
        names = ("hpa.yaml", "prometheus.yaml", "adapter.yaml", "rules.yaml", "Caddyfile")
        files = [fixtures / name for name in names]
        done = run(BINARY, "sleep", "check", *files, "--caddy", CADDY, "--start", "12s", "--output", "json", check=False)
        self.assertEqual(done.returncode, 4)
        found = json.loads(done.stdout)
        faults = {(fault["rule"], pathlib.Path(fault["file"]).name) for fault in found["faults"]}
        expected = {("hpa-selector-pattern", "hpa.yaml"), ("prometheus-open-hosts", "prometheus.yaml"), ("adapter-no-anchor", "adapter.yaml")}
        self.assertEqual(faults, expected)
        hold = next(one for one in found["invariants"] if one["id"] == "tenant-hold-within-patience")
        self.assertEqual(hold["cost"], "the last 30 s of the hold serve nobody: your balancer cuts at 60 s")
        self.assertIn(f"{fixtures}/Caddyfile:13: lb_try_duration", hold["sources"])
        none = run(BINARY, "sleep", "check", fixtures / "Caddyfile", "--caddy", "/nowhere/caddy", check=False)
        self.assertEqual(none.returncode, 2)
        self.assertIn("writes JSON, which can be given instead", none.stderr)


class Wake(unittest.TestCase):
    def test_04_a_get_and_posts_held_with_the_numbers_of_the_example_are_answered_within_the_bound_that_check_tells(self):
        shown = json.loads(run(BINARY, "sleep", "check", "--output", "json", cwd=ROOT).stdout)
        longest = shown["tenants"][0]["longest_seconds"]
        with Cluster(*files(), start=12) as made:
            threading.Thread(target=made.scale, args=[15], daemon=True).start()
            body = b"x" * 300_000
            asked = [
                {},
                {"method": "POST", "path": "/mcp", "body": body},
                {"method": "POST", "path": "/c", "body": iter([b"ab", b"cde"]), "chunked": True},
            ]
            answers = made.at_once(*asked)
            self.assertEqual([answer[:2] for answer in answers], [(200, "page"), (200, "300000"), (200, "5")])
            self.assertEqual(len(made.events), 1)
            slowest = max(answer[2] for answer in answers)
            self.assertGreater(slowest, 12)
            self.assertLess(slowest, longest)
            print(f"held for {slowest:.1f} s at most, the bound is {longest} s")

    def test_05_probes_neither_wake_nor_keep_awake_use_does_and_a_quiet_backend_sleeps(self):
        with Cluster(*quick(), start=1) as made:
            threading.Thread(target=made.scale, args=[2], daemon=True).start()
            over = threading.Event()

            def monitor():
                while not over.wait(2):
                    assert made.ask(path="/health")[:2] == (200, "reached")

            watching = threading.Thread(target=monitor)
            watching.start()
            time.sleep(15)
            self.assertEqual(made.events, [], "a probe woke it")
            # The name with a port, and in capitals, is the same host; one that nobody knows is nobody's.
            status, _, took = made.ask(host=f"CMS.example.org:{made.edge}")
            self.assertEqual(status, 200)
            self.assertLess(took, 12)
            for name in ("stranger.example", "a.stranger.example"):
                made.ask(host=name)
            end = time.monotonic() + 25
            while time.monotonic() < end:
                self.assertLess(made.ask()[2], 1)
                time.sleep(0.5)
            self.assertEqual([wanted for _, wanted in made.events], [1], "it slept while it was used")
            last = time.monotonic()
            until("it sleeps", lambda: len(made.events) == 2, 60)
            self.assertGreater(made.events[1][0] - last, 18)
            known = made.query('{__name__=~"caddy_http_.*"}')
            self.assertEqual({series["metric"].get("wake_host") for series in known}, {HOST})
            over.set()
            watching.join()

    def test_06_who_gives_up_soon_after_he_was_seen_has_woken_it(self):
        with Cluster(*quick(), start=1) as made:
            with socket.create_connection(("127.0.0.1", made.edge)) as client:
                client.sendall(f"GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode())
                until("it is seen", lambda: made.query("caddy_http_requests_in_flight > 0"))
            time.sleep(2.5)
            self.assertEqual(made.query("caddy_http_requests_in_flight > 0"), [], "Caddy has noticed")
            threading.Thread(target=made.scale, args=[1], daemon=True).start()
            until("it is woken", lambda: made.replicas == 1, 4)

    def test_07_an_edge_that_cannot_be_scraped_is_no_quiet_one(self):
        with Cluster(*quick(), start=1) as made:
            self.assertEqual(made.metric(), 0)
            made.processes[0].terminate()
            until("nothing instead of zero", lambda: made.metric() is None)
            made.processes.append(made.spawn(CADDY, "run", "--config", made.work / "Caddyfile", "--adapter", "caddyfile"))
            until("zero again", lambda: made.metric() == 0)


if __name__ == "__main__":
    BINARY, CADDY = (str(pathlib.Path(arg).resolve()) for arg in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + [f"-k{name}" for name in sys.argv[3:]], verbosity=2)
