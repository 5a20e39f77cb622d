"""Why: a backend that sleeps is a container that really stops. Makes the image, containers labelled as Compose labels them, and a
gateway in front, and takes all of it away again."""

import json
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
IMAGE = "handover-sleep-test"
SOON = 30


def run(*args, check=True):
    done = subprocess.run(args, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(args)}: {done.stderr}")
    return done.stdout


def image():
    """The app's image; its tag is what it was made of."""
    key = run("sha256sum", str(HERE / "app.rs"))[:12]
    name = f"{IMAGE}:{key}"
    if subprocess.run(["docker", "image", "inspect", name], capture_output=True).returncode == 0:
        return name
    with tempfile.TemporaryDirectory() as work:
        root = pathlib.Path(work, "root", "bin")
        root.mkdir(parents=True)
        flags = ["--edition", "2024", "-O", "-C", "strip=symbols", "-C", "target-feature=+crt-static"]
        run("rustc", *flags, "-o", str(root / "app"), str(HERE / "app.rs"))
        run("tar", "-C", str(root.parent), "-cf", f"{work}/app.tar", ".")
        run("docker", "import", "--change", 'ENTRYPOINT ["/bin/app"]', f"{work}/app.tar", name)
    return name


def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what, is_so, most=SOON):
    end = time.monotonic() + most
    while not (found := is_so()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)
    return found


class Server:
    """A server with one Compose project and a gateway."""

    def __init__(self, binary, more=""):
        self.binary, self.more = binary, more
        self.project = f"sleep{uuid.uuid4().hex[:8]}"
        self.dir = tempfile.TemporaryDirectory(prefix="handover-sleep-")
        self.path = pathlib.Path(self.dir.name)
        self.listen, self.metrics_at = port(), port()
        self.containers, self.hosts, self.ports = {}, [], {}
        self.gateway = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        for name in self.containers.values():
            subprocess.run(["docker", "rm", "-f", name], capture_output=True)
        self.dir.cleanup()

    def container(self, service, depends="", publish=True, options=(), **env):
        name = f"{self.project}-{service}-1"
        labels = {"project": self.project, "service": service, "depends_on": depends, "oneoff": "False"}
        args = [item for key, value in labels.items() for item in ("--label", f"com.docker.compose.{key}={value}")]
        if publish:
            self.ports[service] = port()
            args += ["-p", f"127.0.0.1:{self.ports[service]}:9000"]
        args += [item for key, value in {"PORT": 9000, **env}.items() for item in ("-e", f"{key}={value}")]
        run("docker", "create", "--name", name, *args, *options, image())
        self.containers[service] = name
        return name

    def host(self, name, service, sleep, more=""):
        backend = f"http://127.0.0.1:{self.ports[service]}"
        self.hosts.append(f'[[gateway.host]]\nname = "{name}"\nbackend = "{backend}"\nsleep = {{ {sleep} }}\n{more}\n')

    def config(self):
        (self.path / "gateway.toml").write_text(
            f'[gateway]\nlisten = "127.0.0.1:{self.listen}"\nmetrics = "127.0.0.1:{self.metrics_at}"\n'
            f'control = "{self.path}/control.sock"\n'
            f'{self.place()}'
            f'[[gateway.probe]]\nuser_agent = "monitor"\n[[gateway.health]]\npath = "/health"\n{self.more}\n'
            + "\n".join(self.hosts)
        )

    def place(self):
        sleeps = any("\nsleep = " in host for host in self.hosts)
        return f'[gateway.sleep]\nproject = "{self.project}"\ndir = "{self.path}/app"\n' if sleeps else ""

    def start(self, *args):
        self.config()
        self.log = self.path / f"gateway-{uuid.uuid4().hex[:4]}.log"
        command = [self.binary, "gateway", *args, "-c", "gateway.toml", "--output", "json"]
        with open(self.log, "w") as out:
            self.gateway = subprocess.Popen(command, cwd=self.path, stdout=out, stderr=out)
        until("it serves", lambda: '"serving"' in self.log.read_text())
        return self.gateway

    def stop(self, how=signal.SIGTERM):
        if self.gateway and self.gateway.poll() is None:
            self.gateway.send_signal(how)
            self.gateway.wait(timeout=SOON)

    def said(self, state):
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line["what"] for line in lines if line.get("state") == state]

    def sleep(self, *args, check=True):
        command = [self.binary, "sleep", *args, "-c", "gateway.toml", "--output", "json"]
        done = subprocess.run(command, cwd=self.path, capture_output=True, text=True)
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    def state(self, host="cms.test"):
        _, found = self.sleep("status", host)
        return found["hosts"][0]["state"]

    def becomes(self, state, host="cms.test", most=SOON):
        until(f"{host} is {state}", lambda: self.metric(f'sleep_state{{host="{host}",state="{state}"}}') == 1, most)

    def page(self):
        return run("curl", "-s", f"http://127.0.0.1:{self.metrics_at}/metrics")

    def metric(self, series):
        for line in self.page().splitlines():
            if line.startswith(f"handover_gateway_{series} "):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no {series}")

    def runs(self, service):
        return run("docker", "inspect", "-f", "{{.State.Running}}", self.containers[service]).strip() == "true"

    def begun(self, service):
        """How often it was started."""
        return run("docker", "logs", self.containers[service]).count("begins")

    def record(self, host="cms.test"):
        path = self.path / "app" / "asleep" / f"{host}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def ask(self, request, most=60):
        with socket.create_connection(("127.0.0.1", self.listen), timeout=most) as client:
            client.settimeout(most)
            client.sendall(request.encode() if isinstance(request, str) else request)
            answer = b""
            while part := client.recv(65536):
                answer += part
            return answer.decode()

    def get(self, path="/", host="cms.test", agent="person"):
        return self.ask(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: {agent}\r\nconnection: close\r\n\r\n")

