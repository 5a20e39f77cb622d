"""Why: that nobody notices a backend which is off is a claim about real containers, a real engine and real sockets.

python3 tests/sleep/suite.py target/release/handover [TEST...]    needs grpcio"""

import asyncio
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import unittest

import grpc
import world
from world import Server, until

SLEEP = 'services = ["cms"], after = "1s", awake = "1s"'
BINARY = ""


def server(more=""):
    return Server(BINARY, more)


def one(made, sleep=SLEEP, more="", **env):
    """One container that takes three seconds to accept, asleep behind `cms.test`."""
    made.container("cms", **{"START_AFTER": 3000, **env})
    made.host("cms.test", "cms", sleep, more)
    made.start()
    return made


class Wake(unittest.TestCase):
    def test_01_get_post_chunked_and_websocket_are_answered_through_a_wake(self):
        with server() as made:
            one(made)
            chunked = (
                "POST /chunked HTTP/1.1\r\nhost: cms.test\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
                "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
            )
            websocket = "GET /socket HTTP/1.1\r\nhost: cms.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
            for count, kind in enumerate(["get", "post", "socket"], 1):
                began = time.monotonic()
                if kind == "get":
                    self.assertTrue(made.get("/hello").endswith("/hello 0 0"))
                elif kind == "post":
                    self.assertTrue(made.ask(chunked).endswith("/chunked 0 11"))
                else:
                    with socket.create_connection(("127.0.0.1", made.listen), timeout=30) as client:
                        client.sendall(websocket.encode())
                        self.assertIn(b"101 Switching", client.recv(4096))
                        client.sendall(b"ping")
                        self.assertEqual(client.recv(4096), b"ping")
                took = time.monotonic() - began
                self.assertGreater(took, 3)
                self.assertLess(took, 5)
                self.assertEqual(made.begun("cms"), count)
                made.becomes("asleep")
                self.assertFalse(made.runs("cms"))
                self.assertEqual(made.record()["services"], ["cms"])
                self.assertEqual(made.record()["state"], "asleep")
            _, found = made.sleep("report", check=False)
            self.assertEqual(len(found["reports"][0]["report"]["wakes"]), 3)

    def test_02_a_thousand_requests_at_once_are_one_start_and_all_are_answered_once(self):
        with server() as made:
            one(made)
            answers = asyncio.run(many(made.listen, 1000))
            self.assertTrue(all(answer.startswith("HTTP/1.1 200") for answer in answers))
            bodies = [answer.rsplit("\r\n\r\n", 1)[1] for answer in answers]
            self.assertEqual({body.split(" ")[0] for body in bodies}, {f"/{n}" for n in range(1000)})
            # The backend counts what it gets: each number once.
            self.assertEqual({int(body.split(" ")[1]) for body in bodies}, set(range(1000)))
            self.assertEqual(made.begun("cms"), 1)
            self.assertEqual(made.metric('wakes_total{host="cms.test",result="well"}'), 1)

    def test_03_probes_and_health_checks_neither_wake_nor_keep_awake(self):
        with server() as made:
            one(made, START_AFTER=0)
            made.get()
            end = time.monotonic() + 4
            while time.monotonic() < end:
                self.assertIn("200", made.get(agent="monitor/1").splitlines()[0])
                self.assertIn("200", made.get("/health", host="10.0.0.1").splitlines()[0])
                time.sleep(0.1)
            self.assertEqual(made.state(), "asleep")
            self.assertIn('"backend":"asleep, would wake"', made.get(agent="monitor/1"))
            self.assertEqual(made.begun("cms"), 1)
            self.assertEqual(made.metric('wakes_total{host="cms.test",result="well"}'), 1)

    def test_04_dependencies_start_first_and_a_completed_one_shot_does_not_run_again(self):
        with server() as made:
            made.container("db", publish=False)
            made.container("migrate", depends="db:service_started:false", publish=False, ONCE=0)
            depends = "db:service_started:false,migrate:service_completed_successfully:false"
            made.container("cms", depends=depends)
            made.container("consumer", publish=False)
            made.host("cms.test", "cms", SLEEP + ', stay = ["consumer"]')
            made.start()
            self.assertIn("200", made.get().splitlines()[0])
            made.becomes("asleep")
            self.assertTrue(made.runs("db"), "only what is named is stopped")
            self.assertFalse(made.runs("consumer"), "nobody here started it")
            self.assertIn("200", made.get().splitlines()[0])
            self.assertEqual([made.begun(name) for name in ("db", "migrate", "cms", "consumer")], [1, 1, 2, 0])
            times = {name: started(made, name) for name in ("db", "migrate")}
            self.assertLess(times["db"], times["migrate"])

    def test_05_a_failed_start_is_told_at_once_and_a_crash_loop_opens_the_circuit(self):
        with server() as made:
            one(made, SLEEP + ', tries = 2, again = "30s"', START_AFTER=300, CRASH=1)
            began = time.monotonic()
            answer = made.get()
            self.assertIn("503", answer.splitlines()[0])
            self.assertIn("retry-after: 1", answer)
            self.assertLess(time.monotonic() - began, 5)
            time.sleep(1.1)
            self.assertIn("retry-after: 30", made.get())
            began = time.monotonic()
            self.assertIn("cannot be started", made.get())
            self.assertLess(time.monotonic() - began, 0.5)
            self.assertEqual(made.begun("cms"), 2, "held traffic does not feed it")
            self.assertIsNone(made.record(), "what is broken is nobody's plan")
            self.assertEqual(made.metric('wakes_total{host="cms.test",result="failed"}'), 2)
            self.assertIn("left alone", made.said("wake_failed")[-1])


    def test_06_grpc_is_answered_through_a_wake(self):
        with server() as made:
            made.container("cms", START_AFTER=3000, GRPC=1)
            made.host("cms.test", "cms", SLEEP, 'protocol = "http2"')
            made.start()
            options = [("grpc.default_authority", "cms.test")]
            for count in (1, 2):
                began = time.monotonic()
                with grpc.insecure_channel(f"127.0.0.1:{made.listen}", options=options) as channel:
                    self.assertEqual(channel.unary_unary("/test/Echo")(b"hello", timeout=30), b"hello")
                took = time.monotonic() - began
                self.assertGreater(took, 3)
                self.assertLess(took, 5)
                self.assertEqual(made.begun("cms"), count)
                made.becomes("asleep")

    def test_07_a_health_route_of_a_host_that_sleeps_never_wakes_it(self):
        with server() as made:
            one(made, START_AFTER=0)
            made.get()
            made.becomes("asleep")
            for _ in range(30):
                self.assertIn("200", made.get("/health").splitlines()[0])
            self.assertEqual((made.state(), made.begun("cms")), ("asleep", 1))
            self.assertIn("/healthy 0", made.get("/healthy"), "another path is a request")
            self.assertEqual(made.begun("cms"), 2)

    def test_08_a_helper_that_never_listens_delays_nobody(self):
        with server() as made:
            made.container("helper", publish=False, START_AFTER=3_600_000)
            made.container("cms", depends="helper:service_started:false", START_AFTER=500)
            made.host("cms.test", "cms", 'services = ["cms", "helper"], after = "1s", awake = "1s"')
            made.start()
            began = time.monotonic()
            self.assertIn("200", made.get().splitlines()[0])
            self.assertLess(time.monotonic() - began, 4)
            self.assertTrue(made.runs("helper"))
            made.becomes("asleep")
            self.assertFalse(made.runs("helper"))

    def test_08a_an_app_that_answers_404_is_there(self):
        with server() as made:
            one(made)
            began = time.monotonic()
            self.assertIn("404", made.get("/missing").splitlines()[0])
            self.assertLess(time.monotonic() - began, 5)
            self.assertEqual((made.state(), made.begun("cms")), ("awake", 1))

    def test_09_one_that_hangs_delays_no_other(self):
        with server() as made:
            made.container("hangs", START_AFTER=3_600_000)
            made.container("cms", START_AFTER=500)
            made.host("hangs.test", "hangs", 'services = ["hangs"], after = "1h", start = "20s"')
            made.host("cms.test", "cms", SLEEP)
            made.start()
            with socket.create_connection(("127.0.0.1", made.listen), timeout=60) as client:
                client.sendall(b"GET / HTTP/1.1\r\nhost: hangs.test\r\nconnection: close\r\n\r\n")
                until("it is tried", lambda: made.runs("hangs"))
                began = time.monotonic()
                self.assertIn("200", made.get().splitlines()[0])
                self.assertLess(time.monotonic() - began, 4)
                self.assertEqual(made.state("hangs.test"), "waking")
                self.assertIn(b"503", client.recv(4096))


class Sleep(unittest.TestCase):
    def test_10_long_requests_and_tunnels_keep_it_awake_and_silent_ones_do_not(self):
        with server() as made:
            one(made, SLEEP + ', quiet = "2s"', START_AFTER=0)
            self.assertIn("/slow", made.get("/slow"))
            with socket.create_connection(("127.0.0.1", made.listen), timeout=30) as client:
                client.sendall(b"GET / HTTP/1.1\r\nhost: cms.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
                client.recv(4096)
                for _ in range(8):
                    client.sendall(b"x")
                    self.assertEqual(client.recv(10), b"x")
                    time.sleep(0.5)
                self.assertEqual(made.state(), "awake")
                made.becomes("asleep")
            self.assertEqual(made.begun("cms"), 1)

    def test_11_nothing_is_forwarded_once_the_stop_began_and_who_comes_then_wakes_it_again(self):
        with server() as made:
            one(made, START_AFTER=0, STOP_AFTER=1500)
            made.get()
            made.becomes("stopping")
            began = time.monotonic()
            self.assertIn("/late 0", made.get("/late"), "a fresh process: it answered none before")
            self.assertGreater(time.monotonic() - began, 0.5)
            self.assertNotIn("after the stop began", world.run("docker", "logs", made.containers["cms"]))
            self.assertEqual(made.begun("cms"), 2)

    def test_12_while_somebody_else_holds_the_server_lock_it_stays_awake(self):
        with server() as made:
            one(made, START_AFTER=0)
            (made.path / "app").mkdir(exist_ok=True)
            with open(made.path / "app" / "lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Its hold is 50s: a wake waits half of that for the one who works here.
                fcntl.flock(lock, fcntl.LOCK_UN)
                made.get()
                fcntl.flock(lock, fcntl.LOCK_EX)
                time.sleep(3)
                self.assertEqual(made.state(), "awake")
                self.assertIn("somebody else works on this server", made.said("not_slept")[0])
                self.assertGreater(made.metric('sleep_overdue_seconds{host="cms.test"}'), 1)
            made.becomes("asleep")

    def test_13_a_wake_waits_for_planned_work_and_joins_what_it_started(self):
        with server() as made:
            one(made, START_AFTER=0)
            made.get()
            made.becomes("asleep")
            with open(made.path / "app" / "lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                with socket.create_connection(("127.0.0.1", made.listen), timeout=30) as client:
                    client.sendall(b"GET /waits HTTP/1.1\r\nhost: cms.test\r\nconnection: close\r\n\r\n")
                    time.sleep(1)
                    self.assertFalse(made.runs("cms"))
                    self.assertEqual(made.record()["state"], "waking", "whoever works here is told")
                    fcntl.flock(lock, fcntl.LOCK_UN)
                    self.assertIn(b"/waits", client.recv(4096))

    def test_13a_a_wake_that_lost_its_patience_starts_nothing_that_is_being_stopped(self):
        with server() as made:
            one(made, START_AFTER=0, more='hold = "4s"')
            made.get()
            made.becomes("asleep")
            path = made.path / "app" / "asleep" / "cms.test.json"
            with open(made.path / "app" / "lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # As a deploy writes it just before it stops what it has verified.
                asleep = made.record()
                path.write_text(json.dumps({**asleep, "state": "stopping", "until": int(time.time()) + 60}))
                self.assertIn("503", made.get().splitlines()[0])
                self.assertEqual((made.begun("cms"), made.record()["state"]), (1, "stopping"))
                path.write_text(json.dumps(asleep))
                self.assertIn("200", made.get("/now").splitlines()[0], "the lock is still held, and nothing is stopped")
            self.assertEqual(made.begun("cms"), 2)

    def test_13b_who_waits_for_planned_work_goes_as_soon_as_it_runs_and_is_not_to_be_stopped(self):
        with server() as made:
            one(made, START_AFTER=500)
            made.get()
            made.becomes("asleep")
            path = made.path / "app" / "asleep" / "cms.test.json"
            with open(made.path / "app" / "lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # As a deploy starts it to verify it: that is nobody's use.
                world.run("docker", "start", made.containers["cms"])
                time.sleep(2)
                self.assertEqual((made.state(), made.record()["state"]), ("asleep", "asleep"))
                asleep = made.record()
                path.write_text(json.dumps({**asleep, "state": "stopping", "until": int(time.time()) + 60}))
                with socket.create_connection(("127.0.0.1", made.listen), timeout=30) as client:
                    client.sendall(b"GET /waits HTTP/1.1\r\nhost: cms.test\r\nconnection: close\r\n\r\n")
                    client.settimeout(3)
                    with self.assertRaises(TimeoutError, msg="it runs, and is about to be stopped"):
                        client.recv(4096)
                    path.write_text(json.dumps(asleep))
                    began = time.monotonic()
                    client.settimeout(30)
                    self.assertIn(b"/waits", client.recv(4096))
                    # Half of its hold is 25 s; nobody has to wait for that.
                    self.assertLess(time.monotonic() - began, 2)
                self.assertIsNone(made.record(), "whoever holds the lock does not put it back to sleep")
            self.assertEqual(made.begun("cms"), 2)
            _, found = made.sleep("report", check=False)
            self.assertEqual(len(found["reports"][0]["report"]["wakes"]), 2, "somebody asked for it")

    def test_14_started_and_stopped_by_others_it_is_adopted_and_noticed(self):
        with server() as made:
            one(made, 'services = ["cms"], after = "3s", awake = "1s"', START_AFTER=0)
            made.get()
            made.becomes("asleep")
            world.run("docker", "start", made.containers["cms"])
            made.becomes("awake")
            self.assertIsNone(made.record())
            time.sleep(1.5)
            self.assertEqual(made.state(), "awake", "the idle clock began anew")
            world.run("docker", "stop", made.containers["cms"])
            made.becomes("away")
            self.assertIsNone(made.record(), "that is nobody's plan")
            self.assertIn("200", made.get().splitlines()[0])

    def test_15_state_survives_a_restart_a_kill_and_a_take_over(self):
        with server() as made:
            one(made, START_AFTER=0, STOP_AFTER=1000)
            made.get()
            made.becomes("asleep")
            made.stop()
            made.start()
            made.becomes("asleep")
            self.assertEqual(made.begun("cms"), 1, "nobody was woken by that")
            made.get()
            made.becomes("stopping")
            made.stop(signal.SIGKILL)
            made.start()
            self.assertIn("200", made.get().splitlines()[0])
            self.assertNotIn("after the stop began", world.run("docker", "logs", made.containers["cms"]))
            made.becomes("asleep")
            old = made.gateway
            made.start("--take-over")
            old.wait(timeout=30)
            made.becomes("asleep")
            self.assertIn("200", made.get().splitlines()[0])

    def test_15a_a_torn_record_is_no_reason_not_to_serve_and_is_made_true_again(self):
        for runs in (False, True):
            with server() as made:
                one(made, START_AFTER=500)
                made.get()
                made.becomes("asleep")
                made.stop()
                (made.path / "app" / "asleep" / "cms.test.json").write_text('{"format":1,"ho')
                if runs:
                    world.run("docker", "start", made.containers["cms"])
                made.start()
                self.assertIn("200", made.get().splitlines()[0])
                self.assertIsNone(made.record())
                self.assertIn("cms.test.json", made.said("noticed")[0])
                made.becomes("asleep")
                self.assertEqual(made.record()["state"], "asleep")

    def test_16_commands_wake_and_put_to_sleep_and_a_reload_that_ends_it_wakes(self):
        with server() as made:
            one(made, 'services = ["cms"], after = "1h"', START_AFTER=0, MEMORY=64)
            _, woken = made.sleep("wake", "CMS.test")
            self.assertEqual((woken["state"], made.runs("cms")), ("awake", True))
            _, slept = made.sleep("now", "cms.test")
            self.assertEqual((slept["state"], made.runs("cms")), ("asleep", False))
            code, refused = made.sleep("wake", "other.test", check=False)
            self.assertEqual((code, refused["error"]["kind"]), (2, "usage"))
            code, found = made.sleep("report", "cms.test", check=False)
            self.assertEqual((code, found["reports"][0]["report"]["gate"]["verdict"]), (4, "too_early"))
            saved = found["reports"][0]["report"]
            self.assertGreater(saved["mib_hours"], 0)
            self.assertIn("MiB are free", made.said("slept")[0])
            made.hosts = [host.replace("sleep = ", "# sleep = ") for host in made.hosts]
            made.config()
            made.gateway.send_signal(signal.SIGHUP)
            until("it is woken for good", lambda: made.runs("cms") and made.record() is None)
            self.assertNotIn("sleep_state", made.page().replace("# HELP handover_gateway_sleep_state", "").replace("# TYPE handover_gateway_sleep_state", ""))

    def test_17_an_engine_that_is_gone_is_told_and_nothing_else_breaks(self):
        with server() as made:
            made.container("cms")
            made.host("cms.test", "cms", SLEEP)
            made.config()
            path = made.path / "gateway.toml"
            world.run("docker", "start", made.containers["cms"])
            config = made.config

            def without():
                config()
                path.write_text(path.read_text().replace("[gateway.sleep]", '[gateway.sleep]\ndocker = "/nowhere.sock"'))

            made.config = without
            made.start()
            self.assertIn("200", made.get().splitlines()[0], "it is awake as far as anybody knows")
            self.assertIn("200", made.get("/health").splitlines()[0], "nor is the gateway itself taken for broken")
            until("it says so", lambda: made.said("not_slept"))
            self.assertTrue(made.runs("cms"))


    def test_18_a_reload_sends_nobody_away_who_waits_and_cuts_no_tunnel(self):
        with server() as made:
            one(made, more="held = 100")
            hello = "GET /hello HTTP/1.1\r\nhost: cms.test\r\nconnection: close\r\n\r\n"
            waiting = [socket.create_connection(("127.0.0.1", made.listen), timeout=30) for _ in range(20)]
            for client in waiting:
                client.sendall(hello.encode())
            until("they wait", lambda: made.metric('held{host="cms.test"}') == 20)
            made.hosts = [host.replace("held = 100", "held = 1") for host in made.hosts]
            made.config()
            made.gateway.send_signal(signal.SIGHUP)
            until("it is taken", lambda: made.said("reloaded"))
            answers = [client.recv(4096) for client in waiting]
            self.assertEqual({answer[:12] for answer in answers}, {b"HTTP/1.1 200"})
            self.assertEqual(made.begun("cms"), 1)
            with socket.create_connection(("127.0.0.1", made.listen), timeout=30) as tunnel:
                tunnel.sendall(b"GET / HTTP/1.1\r\nhost: cms.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
                self.assertIn(b"101", tunnel.recv(4096))
                for _ in range(3):
                    made.gateway.send_signal(signal.SIGHUP)
                    time.sleep(0.3)
                    tunnel.sendall(b"ping")
                    self.assertEqual(tunnel.recv(10), b"ping")
                self.assertEqual(made.state(), "awake", "it still counts")


    def test_19_a_second_gateway_of_the_same_hosts_is_told_by_the_first(self):
        with server() as made:
            one(made, START_AFTER=0)
            path = made.path / "second.toml"
            text = (made.path / "gateway.toml").read_text().replace("control.sock", "second.sock")
            for mine in (made.listen, made.metrics_at):
                text = text.replace(str(mine), str(world.port()))
            path.write_text(text)
            with open(made.path / "second.log", "w") as out:
                second = subprocess.Popen([BINARY, "gateway", "-c", str(path)], cwd=made.path, stdout=out, stderr=out)
            try:
                until("it is told", lambda: any("another gateway" in what for what in made.said("noticed")))
            finally:
                second.terminate()
                second.wait(timeout=30)
            made.stop()
            made.start()
            old, log = made.gateway, made.log
            with socket.create_connection(("127.0.0.1", made.listen), timeout=30) as tunnel:
                tunnel.sendall(b"GET / HTTP/1.1\r\nhost: cms.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
                self.assertIn(b"101", tunnel.recv(4096))
                made.start("--take-over")
                time.sleep(6)
                self.assertIsNone(old.poll(), "it stays for the tunnel")
            old.wait(timeout=30)
            self.assertNotIn("has taken", log.read_text(), "one that takes over is no second one")


def started(made, service):
    return world.run("docker", "inspect", "-f", "{{.State.StartedAt}}", made.containers[service])


async def many(port, count):
    async def ask(number):
        read, write = await asyncio.open_connection("127.0.0.1", port)
        write.write(f"GET /{number} HTTP/1.1\r\nhost: cms.test\r\nconnection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(read.read(), 60)
        write.close()
        return answer.decode()

    return await asyncio.gather(*(ask(number) for number in range(count)))


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    tests = sys.argv[1:]
    names = unittest.TestLoader().getTestCaseNames
    known = {name: case for case in (Wake, Sleep) for name in names(case)}
    suite = unittest.TestSuite(
        case(name) for name, case in known.items() if not tests or any(wanted in name for wanted in tests)
    )
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
