"""Why: in the second mode the HPA reads the gateway by way of the cluster's API server. So the real kubectl asks, through a small API server
that hands the aggregated API on as a real one does: over TLS, with the front proxy's certificate.

python3 tests/kubernetes/gateway.py BINARY KUBECTL [TEST...]"""

import http.client
import http.server
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from suite import ROOT, Backend, port, run, until

BINARY, KUBECTL = "", ""
HOST = "cms.example.org"
METRIC = "tenant_http_requests_in_flight"
GROUP = "/apis/external.metrics.k8s.io/v1beta1"
WORKLOAD = "/apis/apps/v1/namespaces/tenant-example/deployments/app-backend"
READ = f"{GROUP}/namespaces/tenant-example/{METRIC}"
# What kubectl has to know of a kind before it takes a manifest of it: group and version, name, plural, and whether it lives in a namespace.
KINDS = [
    ("v1", "Namespace", "namespaces", False),
    ("v1", "ServiceAccount", "serviceaccounts", True),
    ("v1", "ConfigMap", "configmaps", True),
    ("v1", "Service", "services", True),
    ("apps/v1", "Deployment", "deployments", True),
    ("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", True),
    ("cert-manager.io/v1", "Issuer", "issuers", True),
    ("cert-manager.io/v1", "Certificate", "certificates", True),
    ("apiregistration.k8s.io/v1", "APIService", "apiservices", False),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", True),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", True),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", False),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", False),
]


class Certificates:
    """The gateway's own, the front proxy's authority with a client of it, and a stranger's."""

    def __init__(self, work):
        self.work = work
        for ca in ("serving-ca", "front-proxy-ca", "stranger-ca"):
            self.openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={ca}",
                         "-keyout", f"{ca}.key", "-out", f"{ca}.crt")
        for name, ca in (("tls", "serving-ca"), ("front-proxy-client", "front-proxy-ca"), ("stranger", "stranger-ca")):
            self.openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
            usage = "serverAuth\nsubjectAltName=DNS:handover-gateway.handover.svc" if name == "tls" else "clientAuth"
            (work / "extensions").write_text(f"extendedKeyUsage={usage}\n")
            self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial",
                         "-days", "2", "-extfile", "extensions", "-out", f"{name}.crt")

    def openssl(self, *args):
        run("openssl", *args, cwd=self.work)

    def client(self, name=None):
        context = ssl.create_default_context(cafile=str(self.work / "serving-ca.crt"))
        if name:
            context.load_cert_chain(self.work / f"{name}.crt", self.work / f"{name}.key")
        return context


class Api(http.server.BaseHTTPRequestHandler):
    """Discovery of the kinds that are rendered, and the aggregated API."""

    protocol_version = "HTTP/1.1"
    cluster = None

    def do_GET(self):
        cluster = self.cluster
        if self.path.startswith("/apis/external.metrics.k8s.io"):
            return self.answer(*cluster.aggregated(self.path))
        if not self.path.startswith(WORKLOAD):
            return self.answer(*self.discovery())
        if cluster.away:
            return self.close()
        with cluster.lock:
            found = cluster.workload() if self.path == WORKLOAD else cluster.scale_of()
        self.answer(200, json.dumps(found).encode())

    def do_PUT(self):
        """The scale, where what was read is still so."""
        cluster, sent = self.cluster, self.sent()
        if cluster.away:
            return self.close()
        if self.headers["authorization"] != "Bearer of-the-gateway":
            return self.failure(401, "Unauthorized")
        if cluster.meet:
            cluster.meet.wait(10)
        with cluster.lock:
            if sent["metadata"]["resourceVersion"] != str(cluster.version):
                cluster.conflicts += 1
                return self.failure(409, "Conflict")
            cluster.set(sent["spec"]["replicas"], "gateway")
            self.answer(200, json.dumps(cluster.scale_of()).encode())

    def do_PATCH(self):
        """As `kubectl scale` has it: the number, and no version."""
        cluster, sent = self.cluster, self.sent()
        with cluster.lock:
            cluster.set(sent["spec"]["replicas"], "kubectl")
            self.answer(200, json.dumps(cluster.scale_of()).encode())

    def sent(self):
        return json.loads(self.rfile.read(int(self.headers["content-length"])))

    def close(self):
        self.close_connection = True

    def failure(self, code, reason):
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason}
        self.answer(code, json.dumps(body).encode())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def discovery(self):
        path = self.path.split("?")[0].strip("/")
        groups = sorted({version for version, *_ in KINDS if "/" in version})
        if path == "version":
            found = {"major": "1", "minor": "37", "gitVersion": "v1.37.1"}
        elif path == "api":
            found = {"kind": "APIVersions", "versions": ["v1"]}
        elif path == "apis":
            listed = [{"groupVersion": one, "version": one.split("/")[1]} for one in groups]
            made = [{"name": one["groupVersion"].split("/")[0], "versions": [one], "preferredVersion": one} for one in listed]
            found = {"kind": "APIGroupList", "apiVersion": "v1", "groups": made}
        elif path == "api/v1" or path.removeprefix("apis/") in groups:
            version = path.removeprefix("apis/").removeprefix("api/")
            kinds = [
                {"name": plural, "singularName": "", "namespaced": inside, "kind": kind, "verbs": ["create", "get", "list"]}
                for of, kind, plural, inside in KINDS
                if of == version
            ]
            if version == "apps/v1":
                scale = {"group": "autoscaling", "version": "v1", "kind": "Scale", "namespaced": True, "singularName": ""}
                kinds.append({"name": "deployments/scale", "verbs": ["get", "patch", "update"], **scale})
            found = {"kind": "APIResourceList", "groupVersion": version, "resources": kinds}
        else:
            return 404, b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}'
        return 200, json.dumps(found).encode()

    def log_message(self, *_):
        pass


class Cluster:
    def __init__(self, replace=(), mode="k2", start=12):
        self.work = pathlib.Path(tempfile.mkdtemp())
        self.listen, self.metrics, self.api, self.backend, self.server = (port() for _ in range(5))
        self.replicas, self.events, self.history, self.pod, self.over = 0, [], [], None, threading.Event()
        self.lock, self.version, self.conflicts, self.away, self.meet = threading.RLock(), 7, 0, False, None
        self.start, self.others = start, []
        self.certificates = Certificates(self.work)
        self.out = self.work / "out"
        render(self.work, self.out, replace, mode)
        # As in a pod: over TLS, with an authority of its own and a token.
        self.secure = port()
        trusted = {"certificate-authority": str(self.work / "serving-ca.crt"), "tls-server-name": "handover-gateway.handover.svc"}
        cluster = {"clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{self.secure}", **trusted}}]}
        who = {"users": [{"name": "u", "user": {"token": "of-the-gateway"}}], "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}
        (self.work / "kubeconfig").write_text(json.dumps({"current-context": "x", **cluster, **who}))
        self.log = open(self.work / "log", "w")
        handler = type("Handler", (Api,), {"cluster": self})
        self.apis = http.server.ThreadingHTTPServer(("127.0.0.1", self.server), handler)
        self.apis.daemon_threads = True
        threading.Thread(target=self.apis.serve_forever, daemon=True).start()
        self.tls = http.server.ThreadingHTTPServer(("127.0.0.1", self.secure), handler)
        shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        shown.load_cert_chain(self.work / "tls.crt", self.work / "tls.key")
        self.tls.socket = shown.wrap_socket(self.tls.socket, server_side=True)
        self.tls.daemon_threads = True
        threading.Thread(target=self.tls.serve_forever, daemon=True).start()
        self.gateway = self.begin("gateway.toml", self.listen, self.metrics, self.api)
        until("the gateway answers", lambda: self.aggregated(GROUP)[0] == 200)

    def begin(self, name, listen, metrics, api):
        """A gateway with the rendered configuration, this machine's ports and files instead of the pod's."""
        (self.work / name).write_text(self.configuration(listen, metrics, api))
        command = [BINARY, "gateway", "-c", self.work / name]
        environment = {**os.environ, "KUBECONFIG": str(self.work / "kubeconfig")}
        return subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log, env=environment)

    def another(self):
        listen = port()
        self.others.append(self.begin("other.toml", listen, port(), port()))
        until("the other one listens", lambda: socket.socket().connect_ex(("127.0.0.1", listen)) == 0)
        return listen

    def said(self):
        return (self.work / "log").read_text()

    def workload(self):
        metadata = {"name": "app-backend", "namespace": "tenant-example", "resourceVersion": str(self.version), "uid": "1"}
        return {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": metadata, "spec": {"replicas": self.replicas}}

    def scale_of(self):
        count = {"spec": {"replicas": self.replicas}, "status": {"replicas": self.replicas}}
        return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": self.workload()["metadata"], **count}

    def set(self, wanted, who):
        """Sets the number of pods, whoever does it: the pod comes and goes."""
        with self.lock:
            if wanted == self.replicas:
                return
            self.version += 1
            self.replicas = wanted
            self.events.append((time.monotonic(), wanted, who))
            if wanted:
                version = self.version
                threading.Timer(self.start, lambda: self.up() if self.version == version else None).start()
            elif self.pod:
                self.pod.shutdown()
                self.pod.server_close()
                self.pod = None

    def configuration(self, listen, metrics, api):
        manifest = (self.out / "gateway/manifests.yaml").read_text()
        lines = re.search(r"  gateway.toml: \|-\n((?:    .*\n|\n)+)", manifest)[1].splitlines()
        text = "\n".join(line[4:] for line in lines) + "\n"
        files = {
            "0.0.0.0:8000": f"127.0.0.1:{listen}",
            "0.0.0.0:9180": f"127.0.0.1:{metrics}",
            "0.0.0.0:6443": f"127.0.0.1:{api}",
            "app-backend.tenant-example.svc:8443": f"127.0.0.1:{self.backend}",
            "/etc/handover/tls": str(self.work),
            "/etc/handover/front-proxy/ca.crt": str(self.work / "front-proxy-ca.crt"),
        }
        for old, new in files.items():
            assert old in text, old
            text = text.replace(old, new)
        return text

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        for gateway in [self.gateway, *self.others]:
            gateway.kill()
            gateway.wait()
        for server in (self.apis, self.tls):
            server.shutdown()
            server.server_close()
        if self.pod:
            self.pod.shutdown()
            self.pod.server_close()
        self.log.close()
        shutil.rmtree(self.work)

    def aggregated(self, path, name="front-proxy-client"):
        """As the aggregation layer asks: by address, for the Service's name."""
        context = self.certificates.client(name)
        connection = http.client.HTTPSConnection("127.0.0.1", self.api, context=context, timeout=5)
        try:
            connection.sock = context.wrap_socket(
                socket.create_connection(("127.0.0.1", self.api), 5), server_hostname="handover-gateway.handover.svc"
            )
            connection.request("GET", path, headers={"host": "handover-gateway.handover.svc"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError as error:
            return 503, str(error).encode()
        finally:
            connection.close()

    def kubectl(self, *args, check=True):
        command = [KUBECTL, f"--server=http://127.0.0.1:{self.server}", f"--cache-dir={self.work}/cache", *map(str, args)]
        return run(*command, check=check)

    def raw(self, path):
        return json.loads(self.kubectl("get", "--raw", path).stdout)

    def value(self):
        return int(self.raw(f"{READ}?labelSelector=wake_host%3D{HOST}")["items"][0]["value"])

    def scale(self, sync, window):
        """The HPA by its rules: a look every period, up at once, down when nothing of the window wants a pod."""
        while not self.over.wait(sync):
            status, body = self.aggregated(f"{READ}?labelSelector=wake_host%3D{HOST}")
            if status != 200:
                continue
            now, items = time.monotonic(), json.loads(body)["items"]
            wanted = min(1, math.ceil(sum(int(item["value"]) for item in items) * 1000))
            self.history = [(at, was) for at, was in self.history if now - at < window] + [(now, wanted)]
            with self.lock:
                self.set(max(was for _, was in self.history) if self.replicas else wanted, "hpa")

    def up(self):
        self.pod = http.server.ThreadingHTTPServer(("127.0.0.1", self.backend), Backend)
        self.pod.daemon_threads = True
        threading.Thread(target=self.pod.serve_forever, daemon=True).start()

    def ask(self, method="GET", path="/", body=None, listen=None):
        connection = http.client.HTTPConnection("127.0.0.1", listen or self.listen, timeout=100)
        began = time.monotonic()
        connection.request(method, path, body=body, headers={"host": HOST})
        answer = connection.getresponse()
        status, text = answer.status, answer.read().decode()
        connection.close()
        return status, text, time.monotonic() - began


def render(work, out, replace, mode):
    tenants = work / "tenants"
    tenants.mkdir()
    for name in ("defaults.toml", "example.toml"):
        text = (ROOT / "tenants" / name).read_text()
        if name == "defaults.toml":
            text = text.replace("[cluster]", '[gateway]\nimage = "registry.example.org/handover:1"\nlatch = "30s"\n\n[cluster]')
        for old, new in replace:
            text = text.replace(old, new)
        (tenants / name).write_text(text)
    run(BINARY, "sleep", "render", "--mode", mode, "--tenants", tenants, "--out", out)


class Asked(unittest.TestCase):
    def test_01_kubectl_takes_every_manifest_that_is_rendered(self):
        with Cluster() as made:
            for name in ("gateway/manifests.yaml", "example/hpa.yaml"):
                found = made.kubectl("create", "--dry-run=client", "--validate=false", "-o", "name", "-f", made.out / name).stdout
                manifest = (made.out / name).read_text()
                self.assertEqual(len(found.split()), manifest.count("\nkind: "), found)

    def test_02_kubectl_reads_discovery_and_every_form_of_a_selector_through_the_api_server(self):
        with Cluster() as made:
            self.assertEqual(made.raw(GROUP)["resources"][0]["name"], METRIC)
            self.assertIn("external.metrics.k8s.io/v1beta1", made.raw("/apis/external.metrics.k8s.io")["preferredVersion"]["groupVersion"])
            for selector, count in [
                ("", 1),
                (f"wake_host%3D{HOST}", 1),
                (f"wake_host%3D%3D{HOST}", 1),
                ("wake_host%3Dother", 0),
                (f"wake_host!%3D{HOST}", 0),
                (f"wake_host+in+%28a%2C{HOST}%29", 1),
                (f"wake_host%20notin%20%28{HOST}%29", 0),
                ("wake_host", 1),
                ("%21wake_host", 0),
                ("other", 0),
            ]:
                found = made.raw(f"{READ}?labelSelector={selector}")
                self.assertEqual((found["kind"], len(found["items"])), ("ExternalMetricValueList", count), selector)
            unknown = made.kubectl("get", "--raw", f"{GROUP}/namespaces/n/other", check=False)
            self.assertIn("NotFound", unknown.stderr)
            wrong = made.kubectl("get", "--raw", f"{READ}?labelSelector=a+in+%28b", check=False)
            self.assertIn("a bracket is not closed", wrong.stderr)

    def test_03_nobody_but_the_front_proxy_is_answered(self):
        with Cluster() as made:
            self.assertEqual(made.aggregated(GROUP)[0], 200)
            for name in (None, "stranger"):
                status, why = made.aggregated(GROUP, name)
                self.assertEqual(status, 503, name)
                self.assertRegex(why.decode(), "certificate|alert|closed|reset", name)


class Wake(unittest.TestCase):
    def test_04_a_get_and_a_post_are_held_through_a_wake_within_the_bound_that_check_tells(self):
        with Cluster() as made:
            shown = run(BINARY, "sleep", "check", "--mode", "k2", "--output", "json", cwd=ROOT).stdout
            longest = json.loads(shown)["tenants"][0]["longest_seconds"]
            self.assertEqual(made.value(), 0)
            threading.Thread(target=made.scale, args=[15, 1800], daemon=True).start()
            answers = [None, None]

            def one(at, *asked):
                answers[at] = made.ask(*asked)

            threads = [
                threading.Thread(target=one, args=[0]),
                threading.Thread(target=one, args=[1, "POST", "/mcp", b"x" * 300_000]),
            ]
            for thread in threads:
                thread.start()
            until("both are counted", lambda: made.value() == 2)
            for thread in threads:
                thread.join()
            self.assertEqual([answer[:2] for answer in answers], [(200, "page"), (200, "300000")])
            slowest = max(answer[2] for answer in answers)
            self.assertLess(slowest, longest)
            print(f"held for {slowest:.1f} s at most, the bound is {longest} s")

    def test_05_a_request_of_a_moment_is_shown_to_who_looks_later_and_probes_are_not(self):
        with Cluster([('latch = "30s"', 'latch = "4s"')]) as made:
            made.up()
            self.assertEqual(made.ask(path="/health")[0], 200)
            time.sleep(1)
            self.assertEqual(made.value(), 0, "a probe")
            self.assertLess(made.ask()[2], 1)
            time.sleep(2)
            self.assertEqual(made.value(), 1)
            until("the latch is over", lambda: made.value() == 0, 6)

    def test_06_who_gives_up_has_woken_it_and_nothing_is_executed_for_him(self):
        with Cluster(start=0.5) as made:
            Backend.got.clear()
            connection = http.client.HTTPConnection("127.0.0.1", made.listen, timeout=100)
            connection.request("POST", "/mcp", body=b"write", headers={"host": HOST})
            until("it is held", lambda: made.value() == 1)
            connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()
            threading.Thread(target=made.scale, args=[1, 20], daemon=True).start()
            until("it is woken", lambda: made.pod, 10)
            time.sleep(2)
            self.assertEqual(Backend.got, [])
            self.assertEqual([wanted for _, wanted, _ in made.events], [1])

    def test_07_another_certificate_is_taken_up_without_a_restart_and_held_requests_live_on(self):
        with Cluster() as made:
            answers = []
            thread = threading.Thread(target=lambda: answers.append(made.ask()))
            thread.start()
            until("it is held", lambda: made.value() == 1)
            shutil.copy(made.work / "stranger-ca.crt", made.work / "front-proxy-ca.crt")
            made.gateway.send_signal(signal.SIGHUP)
            until("the new authority counts", lambda: made.aggregated(GROUP, "stranger")[0] == 200)
            self.assertEqual(made.aggregated(GROUP)[0], 503)
            made.up()
            thread.join()
            self.assertEqual(answers[0][0], 200)


class Direct(unittest.TestCase):
    """Woken at the first request that waits, beside the HPA."""

    def test_08_the_first_request_wakes_at_once_and_the_hpa_neither_takes_it_back_nor_forgets_to_put_it_to_sleep(self):
        quick = [('latch = "30s"', 'latch = "4s"')]
        with Cluster(quick, "k2+", start=3) as made:
            made.history = [(time.monotonic(), 0)]
            threading.Thread(target=made.scale, args=[2, 6], daemon=True).start()
            time.sleep(3)
            status, _, took = made.ask("POST", "/mcp", b"x" * 300_000)
            self.assertEqual(status, 200)
            self.assertGreater(took, 3)
            self.assertLess(took, 4)
            time.sleep(6)
            self.assertEqual([event[1:] for event in made.events], [(1, "gateway")])
            until("it sleeps", lambda: len(made.events) == 2, 20)
            self.assertEqual(made.events[1][1:], (0, "hpa"))
            self.assertGreater(made.events[1][0] - made.events[0][0], 3 + 4 + 4)
            # The gateway does not write twice within a period.
            time.sleep(max(0, made.events[0][0] + 15 - time.monotonic()))
            self.assertLess(made.ask()[2], 4)

    def test_09_of_two_gateways_that_wake_at_once_one_does_and_both_hold(self):
        with Cluster(mode="k2+", start=2) as made:
            other = made.another()
            made.meet = threading.Barrier(2)
            answers = [None, None]

            def one(at, listen):
                answers[at] = made.ask(listen=listen)

            threads = [threading.Thread(target=one, args=pair) for pair in enumerate([made.listen, other])]
            for thread in threads:
                thread.start()
            until("one of them was second", lambda: made.conflicts == 1)
            made.meet = None
            for thread in threads:
                thread.join()
            self.assertEqual([answer[0] for answer in answers], [200, 200])
            self.assertEqual([event[1:] for event in made.events], [(1, "gateway")])

    def test_10_an_api_that_is_away_is_asked_again_while_requests_wait_and_told_of_once(self):
        with Cluster(mode="k2+", start=1) as made:
            made.away = True
            answers = []
            thread = threading.Thread(target=lambda: answers.append(made.ask()))
            thread.start()
            until("it is told", lambda: "app-backend" in made.said(), 10)
            time.sleep(10)
            self.assertEqual(made.events, [])
            self.assertEqual(made.said().count("tenant-example/deployment/app-backend"), 1, made.said())
            made.away = False
            thread.join()
            self.assertEqual(answers[0][0], 200)
            self.assertLess(answers[0][2], 30)

    def test_11_who_sets_it_back_to_zero_while_requests_wait_is_told_of_and_does_not_win(self):
        with Cluster(mode="k2+", start=3) as made:
            answers = []
            thread = threading.Thread(target=lambda: answers.append(made.ask()))
            thread.start()
            until("it is woken", lambda: made.events)
            made.set(0, "gitops")
            thread.join()
            self.assertEqual(answers[0][0], 200)
            self.assertEqual([event[1:] for event in made.events], [(1, "gateway"), (0, "gitops"), (1, "gateway")])
            self.assertGreater(made.events[2][0] - made.events[0][0], 14, "not faster than the HPA looks")
            self.assertIn("it was set back to zero while requests wait", made.said())

    def test_12_kubectl_scales_the_same_workload_and_takes_what_is_rendered_for_it(self):
        with Cluster(mode="k2+", start=1) as made:
            found = made.kubectl("create", "--dry-run=client", "--validate=false", "-o", "name", "-f", made.out / "gateway/manifests.yaml").stdout
            self.assertIn("role.rbac.authorization.k8s.io/handover-wake-example", found)
            made.kubectl("scale", "-n", "tenant-example", "deployment/app-backend", "--replicas=1")
            self.assertEqual([event[1:] for event in made.events], [(1, "kubectl")])
            self.assertEqual(made.ask()[0], 200)
            self.assertEqual(len(made.events), 1, "what is up is not woken")


if __name__ == "__main__":
    BINARY, KUBECTL = (str(pathlib.Path(arg).resolve()) for arg in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + [f"-k{name}" for name in sys.argv[3:]], verbosity=2)
