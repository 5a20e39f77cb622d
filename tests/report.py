#!/usr/bin/env python3
"""Why: a page that only looks right to who wrote it helps nobody at night. Pages of real rehearsals are opened in Chromium: everything is
there, nothing complains, nothing is fetched, and axe finds nothing that shuts a person out.

report.py HANDOVER AXE    (AXE is axe.min.js)
"""
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HANDOVER = AXE = None


def handover(*argv, code):
    done = subprocess.run([HANDOVER, *argv], cwd=ROOT, text=True, capture_output=True, timeout=240)
    assert done.returncode == code, (argv, done.returncode, done.stderr[-2000:])
    return done.stdout


def opened(page, scheme="light"):
    """The page's own document after its scripts ran, and what the browser logged meanwhile."""
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=20000",
         *(["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []), "--dump-dom", page.as_uri()],
        text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.at = Path(cls.folder.name)
        cls.good, cls.bad, cls.lossy = cls.at / "good.html", cls.at / "bad.html", cls.at / "lossy.html"
        cls.stream = handover("rehearse", "--speed", "5", "--output", "json", "--report", str(cls.good), code=0)
        handover("rehearse", "--speed", "5", "--fail", "web-2:api", "--report", str(cls.bad), code=5)
        handover("rehearse", "--speed", "5", "--naive", "--report", str(cls.lossy), code=7)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_lanes_marks_and_what_they_say_are_there(self):
        page, complaints = opened(self.good)
        self.assertEqual(complaints, [])
        for server in ("web-1", "web-2", "web-3"):
            for step in ("out", "settle", "stop", "start", "verify", "in", "settle in"):
                self.assertRegex(page, rf'aria-label="{server}: {step} [0-9.]+s, from [0-9.]+s')
                self.assertRegex(page, rf"<title>{server}: {step} ")
        self.assertIn("serve-covers-out (mythex-api)", page)
        self.assertRegex(page, r"<dd>0 of \d+ lost</dd>")
        self.assertGreater(len(re.findall(r'<rect class="served"', page)), 60)

    def test_a_failure_and_its_undo_are_marked(self):
        page, _ = opened(self.bad)
        self.assertRegex(page, r'class="mark failed"[^>]*aria-label="web-2: verify [^"]*; failed')
        self.assertRegex(page, r'undo"[^>]*aria-label="web-2: start [^"]*roll back')

    def test_every_lost_request_is_a_mark_with_its_reason(self):
        page, _ = opened(self.lossy)
        marks = re.findall(r'class="mark loss"[^>]*aria-label="lost at [0-9.]+s: ([^"]+)"', page)
        lost = int(re.search(r"<dd>(\d+) of \d+ lost</dd>", page).group(1))
        self.assertEqual(len(marks), min(lost, 100))
        self.assertTrue(all("nowhere" in mark or "cut_short" in mark for mark in marks), marks[:3])

    def test_nothing_is_fetched(self):
        for page in (self.good, self.bad, self.lossy):
            text = page.read_text()
            for outside in ("src=", "@import", "url(", "href=\"http"):
                self.assertNotIn(outside, text)

    def test_a_saved_stream_makes_the_same_page(self):
        file, again = self.at / "stream.jsonl", self.at / "again.html"
        file.write_text(self.stream)
        handover("report", "--events", str(file), "--out", str(again), code=0)
        lanes = lambda path: re.search(r"<h2>Servers</h2>.*?</svg>", path.read_text(), re.S).group(0)
        self.assertEqual(lanes(again), lanes(self.good))

    def test_axe_finds_nobody_shut_out_in_light_and_dark(self):
        for page in (self.good, self.bad, self.lossy):
            for scheme in ("light", "dark"):
                checked = self.at / "axe.html"
                script = AXE.read_text() + ";axe.run().then(r => { const o = document.createElement('pre'); o.id = 'axe'; o.textContent = JSON.stringify(r.violations.map(v => [v.id, v.help, v.nodes[0].html])); document.body.append(o); });"
                checked.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
                found, _ = opened(checked, scheme)
                text = re.search(r'<pre id="axe">(.*?)</pre>', found, re.S)
                self.assertIsNotNone(text, "axe did not end")
                self.assertEqual(json.loads(text.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")), [], (page.name, scheme))


if __name__ == "__main__":
    HANDOVER, AXE = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
