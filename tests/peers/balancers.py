#!/usr/bin/env python3
"""Why: a simulator that we wrote proves itself. The same app, faults and traffic behind it and behind a real HAProxy: the
classes of `handover measure` agree where the balancers do the same, and differ only where docs/balancers.md says so.

balancers.py BINARY
"""
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BINARY = str(Path(sys.argv[1]).resolve())
RATE, FOR = 40, "3s"
#        the app does       ALB         HAProxy
AGREED = {
    "ok": ("served", "served"),
    "500": ("app_errors", "app_errors"),
    "503": ("app_errors", "app_errors"),
    "404": ("served", "served"),
    "refuse": ("nowhere", "nowhere"),
    "close": ("nowhere", "nowhere"),
    "cut": ("cut_short", "cut_short"),
    "hang": ("nowhere", "nowhere"),
    "all unhealthy": ("served", "nowhere"),
}


class App:
    """Answers each connection's one request as the mode says; its health, on a port of its own, is fine unless the mode says so."""

    def __init__(self):
        self.mode = "ok"
        self.health = self.listen(lambda connection: self.answer(connection, 503 if self.mode == "all unhealthy" else 200))
        self.real_port, self.real = None, None
        self.open()

    def listen(self, serve):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", getattr(self, "real_port", None) or 0))
        listener.listen(256)

        def run():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=self.one, args=(connection, serve), daemon=True).start()

        threading.Thread(target=run, daemon=True).start()
        return listener

    def one(self, connection, serve):
        try:
            if connection.recv(65536):
                serve(connection)
        except OSError:
            pass
        finally:
            connection.close()

    def open(self):
        self.real = self.listen(self.serve)
        self.real_port = self.real.getsockname()[1]

    def answer(self, connection, status, length=2, body=b"ok"):
        connection.sendall(f"HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n".encode() + body)

    def serve(self, connection):
        if self.mode in ("500", "503", "404"):
            self.answer(connection, int(self.mode))
        elif self.mode == "cut":
            self.answer(connection, 200, length=4096)
        elif self.mode == "hang":
            time.sleep(30)
        elif self.mode != "close":
            self.answer(connection, 200)

    def become(self, mode):
        self.mode = mode
        if mode == "refuse":
            self.real.shutdown(socket.SHUT_RDWR)
            self.real.close()
            self.real = None
        elif self.real is None:
            self.open()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def simulator(app, work):
    # Ten times as fast: its idle timeout of 60 s is over after 6.
    spec = {"nodes": ["a"], "speed": 10, "groups": [
        {"name": "api", "port": app.real_port, "path": "/health", "health_port": app.health.getsockname()[1], "interval": 2, "timeout": 1,
         "unhealthy": 2, "healthy": 2, "targets": [{"id": "i-1", "address": f"127.0.0.1:{app.real_port}", "zone": "a"}]}]}
    (work / "spec.json").write_text(json.dumps(spec))
    process = subprocess.Popen([BINARY, "lab-balancer", str(work / "spec.json")], stdout=subprocess.PIPE, text=True)
    return process, json.loads(process.stdout.readline())["nodes"][0]


def haproxy(app, work):
    front = free_port()
    (work / "haproxy.cfg").write_text(f"""
defaults
  mode http
  timeout connect 1s
  timeout client 30s
  timeout server 6s
  retries 0
frontend front
  bind 127.0.0.1:{front}
  default_backend api
backend api
  option httpchk GET /health
  server web-1 127.0.0.1:{app.real_port} check port {app.health.getsockname()[1]} inter 200ms fall 2 rise 2
""")
    return subprocess.Popen(["haproxy", "-db", "-f", str(work / "haproxy.cfg")], stderr=subprocess.DEVNULL), f"127.0.0.1:{front}"


def measured(node):
    run = subprocess.run([BINARY, "measure", f"http://{node}/version", "--rate", str(RATE), "--for", FOR, "--timeout", "15s", "--output", "json"],
                         capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    requests = json.loads(run.stdout.strip().splitlines()[-1])["requests"]
    lost = requests["nowhere"] + requests["cut_short"] > 0
    assert run.returncode == (7 if lost else 0), (run.returncode, requests, run.stderr)
    return {name: count for name, count in requests.items() if count and name != "total"}


def main():
    app, work = App(), Path(tempfile.mkdtemp(prefix="handover-balancers-"))
    ours, theirs = simulator(app, work), haproxy(app, work)
    wrong = 0
    try:
        time.sleep(1.5)
        for mode, expected in AGREED.items():
            app.become(mode)
            time.sleep(1.5)  # until the checks of both have noticed what there is to notice
            seen = [measured(node) for _, node in (ours, theirs)]
            fits = all(list(classes) == [want] for classes, want in zip(seen, expected))
            wrong += not fits
            print(f"{'ok  ' if fits else 'BAD '}{mode:14} simulator {seen[0]}, HAProxy {seen[1]}")
    finally:
        for process, _ in (ours, theirs):
            process.send_signal(signal.SIGTERM)
            process.wait(10)
    print(f"{len(AGREED)} situations, {wrong} otherwise than docs/balancers.md says")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
