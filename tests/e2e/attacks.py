#!/usr/bin/env python3
"""Why: what goes wrong on real servers and is too slow or too odd for every run of the suite: every way to drain, kills
at every step, rights that are missing, disks that are full, definitions that are strange.

HANDOVER_LONG=1 attacks.py BINARY [NAME...]   (without HANDOVER_LONG only the short ones)
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import suite
from suite import BY_FILE, End, HERE, SERVERS, fleet, sh

LONG = os.environ.get("HANDOVER_LONG") == "1"
long = unittest.skipUnless(LONG, "HANDOVER_LONG=1 runs it")
ONE = ["--servers", "web-1"]
STEPS = os.environ.get("HANDOVER_KILL_AT", "lock flip settle stop start verify back").split()
SECRET = "s3cr3t-Pa55w0rd"


def quick(text):
    return text.replace('stable = "2s"', 'stable = "1s"').replace('margin = "2s"', 'margin = "1s"')


class Attacks(suite.Base):
    """Each case finds a fleet that serves v1 or v2 on every server, and leaves one."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        end = cls.world.run("deploy", "--first", tag="v1")
        assert end.code == 0, end

    def setUp(self):
        self.restore = []
        for name in ("compose.yaml", "gateway.toml", ".env.production"):
            self.write(name, (HERE / "app" / name).read_text())
        super().setUp()
        self.config()

    def tearDown(self):
        for undo in reversed(self.restore):
            undo()

    def config(self, drain=BY_FILE, user=None, change=lambda text: text):
        self.world.configure(drain=drain, user=user, change=lambda text: change(quick(text)))

    def write(self, name, text):
        (self.world.dir / name).write_text(text)

    def compose(self, change):
        self.write("compose.yaml", change((HERE / "app" / "compose.yaml").read_text()))

    def container(self, server):
        return next(s["container"] for s in self.world.fleet["servers"] if s["name"] == server)

    def shell(self, script, server="web-1", undo=None):
        if undo:
            self.restore.append(lambda: self.shell(undo, server))
        done = sh("docker", "exec", self.container(server), "bash", "-c", script, check=False)
        return (done.stdout + done.stderr).strip()

    def agents(self, server="web-1"):
        return self.shell("pgrep -f '^/opt/mythex/bin/handover-[0-9a-f]* agent'", server).split()

    def kill_agent(self):
        self.shell("kill -9 " + " ".join(self.agents()))

    def deploy(self, tag, *more, **kwargs):
        return self.world.run("deploy", *ONE, *more, tag=tag, **kwargs)

    def other(self, server="web-1"):
        """The tag that the server does not run."""
        image = self.shell("docker inspect -f '{{index .Config.Env}}' $(docker ps -q --filter label=com.docker.compose.service=api)", server)
        return "v1" if "LABEL=v2" in image else "v2"

    def label(self, server="web-1"):
        seen = self.shell("docker ps -q --filter label=com.docker.compose.project=mythex | xargs -r docker inspect -f '{{.Config.Env}}'", server)
        return sorted(set(re.findall(r"LABEL=(\S+?)[\]\s]", seen)))

    def until(self, what, check, seconds=60):
        end = time.time() + seconds
        while not check():
            self.assertLess(time.time(), end, what)
            time.sleep(0.3)

    def at(self, process, step, state="began"):
        """Reads events up to a step; they are kept for a look afterwards."""
        seen = []
        for line in process.stdout:
            seen.append(line)
            event = json.loads(line)
            if event.get("event") == "step" and (event["step"], event["state"]) == (step, state):
                return seen
        self.fail(f"it ended before {step}: {''.join(seen[-4:])}{process.stderr.read()}")

    def good(self, tag=None):
        """The fleet is put right by nothing but a deploy, and serves."""
        end = self.deploy(tag or self.other(), "--start-over", "--wait", "1m")
        self.ended(end, 0)
        self.assertEqual(len(self.label()), 1)
        self.unlocked()
        self.wait_in_rotation()
        return end

    # === (1) every way to drain ===

    def drained_by(self, drain, compose=lambda text: text, change=lambda text: text):
        self.compose(compose)
        self.config(drain=drain, change=change)
        mark = self.world.load.mark()
        tag = self.other()
        end = self.deploy(tag)
        self.ended(end, 0, "deployed")
        self.nothing_lost(mark, end)
        self.assertEqual(self.label(), [tag])
        return end

    def test_a1_by_http(self):
        self.drained_by('by = "http"\nhttp = { drain = "http://127.0.0.1:8080/drain", undrain = "http://127.0.0.1:8080/undrain" }\nunverified_return = true')

    def test_a2_by_a_command_in_the_container(self):
        self.drained_by('by = "exec"\nexec = { service = "api", drain = ["app", "--drain"], undrain = ["app", "--undrain"] }\nunverified_return = true')

    def test_a3_by_a_command_on_the_server(self):
        curl = lambda path: f'["curl", "-fsS", "-X", "POST", "http://127.0.0.1:8080/{path}"]'
        self.drained_by(f'by = "exec"\nexec = {{ drain = {curl("drain")}, undrain = {curl("undrain")} }}\nunverified_return = true')

    def test_a4_by_signal(self):
        self.drained_by('by = "signal"\nsignal = { service = "api", drain = "SIGUSR1", undrain = "SIGUSR2" }\nunverified_return = true')

    def serves_on(self, seconds):
        return lambda text: text.replace("stop_grace_period: 10s", "stop_grace_period: 60s").replace('SHUTDOWN: "8"', f'SHUTDOWN: "8"\n      SERVE_AFTER_TERM: "{seconds}"')

    def test_a5_by_sigterm(self):
        # The release that is stopped must serve on, so it is deployed by file first.
        self.compose(self.serves_on(16))
        self.ended(self.deploy(self.other()), 0)
        self.wait_in_rotation()
        self.drained_by('by = "sigterm"\nunverified_return = true', compose=self.serves_on(16))

    def test_a6_an_app_that_leaves_at_once_on_sigterm_stops_the_deploy(self):
        self.compose(self.serves_on(0))
        self.ended(self.deploy(self.other()), 0)
        self.wait_in_rotation()
        self.config(drain='by = "sigterm"\nunverified_return = true')
        end = self.deploy(self.other())
        self.assertIn(end.code, (5, 7), str(end))
        self.assertRegex(end.message, "after SIGTERM, before the balancer had let go")
        self.unlocked()
        self.wait_in_rotation()

    def test_a7_a_way_that_does_not_survive_a_restart_is_refused_without_consent(self):
        self.config(drain='by = "signal"\nsignal = { service = "api", drain = "SIGUSR1", undrain = "SIGUSR2" }')
        end = self.deploy(self.other())
        self.ended(end, 4, "refused")
        self.assertIn("unverified_return", str(end))

    def test_a8_a_server_that_only_a_record_calls_drained_is_drained_again(self):
        """Killed while drained by a signal, then the container is restarted: it serves, whatever the record says."""
        self.config(drain='by = "signal"\nsignal = { service = "api", drain = "SIGUSR1", undrain = "SIGUSR2" }\nunverified_return = true')
        process = self.world.start("deploy", *ONE, tag=self.other())
        self.at(process, "settle")
        process.kill()
        self.kill_agent()
        process.communicate()
        self.shell("docker restart $(docker ps -q --filter label=com.docker.compose.service=api)")
        self.wait_in_rotation()
        mark = self.world.load.mark()
        end = self.deploy(self.other())
        self.ended(end, 0, "deployed")
        self.nothing_lost(mark, end)

    # === (2) kills ===

    def killed(self, whom, step):
        mark = self.world.load.mark()
        before, tag = self.label(), self.other()
        process = self.world.start("deploy", *ONE, tag=tag)
        self.at(process, step)
        if "client" in whom:
            process.kill()
        if "agent" in whom:
            self.kill_agent()
        end = End(process, within=120)
        self.until("no agent is left", lambda: not self.agents(), 90)
        self.until("the lock is free", lambda: self.shell("flock -n /opt/mythex/lock echo free") == "free", 60)
        if whom == ["agent"]:
            self.assertIn(end.code, (0, 4, 5, 6), str(end))
            if end.code:
                self.assertIn("web-1", end.message)
        running = self.label()
        if whom == ["client"]:
            self.assertEqual(json.loads(self.shell("cat /opt/mythex/record.json"))["state"], "idle")
            self.assertEqual(len(running), 1, "one release")
            self.assertEqual(self.shell("ls /run/mythex"), "", "flipped back")
            self.wait_in_rotation()
        plan = self.world.run("plan", *ONE, tag=tag)
        self.assertEqual(plan.code, 0, str(plan))
        again = self.deploy(tag, "--wait", "1m")
        self.ended(again, 0)
        self.assertEqual(self.label(), [tag])
        self.assertEqual(self.shell("ls /run/mythex"), "")
        self.unlocked()
        total, lost = self.world.load.since(mark)
        print(f"\n  {whom} at {step}: before {before}, after {running}, client {end.code}, lost {len(lost)} of {total}, then {again.summary['outcome']}", file=sys.stderr)
        self.assertEqual(lost, [])
        self.wait_in_rotation()

    @long
    def test_b1_the_client_is_killed_at_every_step(self):
        for step in STEPS:
            with self.subTest(step):
                self.killed(["client"], step)

    @long
    def test_b2_the_agent_is_killed_at_every_step(self):
        for step in STEPS:
            with self.subTest(step):
                self.killed(["agent"], step)

    @long
    def test_b3_both_are_killed_at_every_step(self):
        for step in STEPS:
            with self.subTest(step):
                self.killed(["client", "agent"], step)

    @long
    def test_b4_the_network_is_cut(self):
        for step in ("flip", "settle", "stop"):
            with self.subTest(step):
                mark = self.world.load.mark()
                tag = self.other()
                process = self.world.start("deploy", *ONE, tag=tag)
                self.at(process, step)
                fleet("cut-ssh", "web-1")
                try:
                    end = End(process, within=180)
                    self.assertIn(end.code, (5, 6), str(end))
                    self.assertIn("web-1", end.message)
                    self.until("flipped back", lambda: self.shell("ls /run/mythex") == "", 90)
                    self.until("the lock is free", lambda: self.shell("flock -n /opt/mythex/lock echo free") == "free")
                    self.assertEqual(len(self.label()), 1)
                finally:
                    fleet("restore-ssh", "web-1")
                self.wait_in_rotation()
                self.nothing_lost(mark)
                self.good(tag)

    @long
    def test_b5_the_server_reboots_in_the_middle(self):
        for step in ("settle", "start"):
            with self.subTest(step):
                tag = self.other()
                process = self.world.start("deploy", *ONE, tag=tag)
                self.at(process, step)
                fleet("reboot", "web-1")
                end = End(process, within=180)
                self.assertIn(end.code, (5, 6), str(end))
                self.assertIn("web-1", end.message)
                self.unlocked()
                plan = self.world.run("plan", *ONE, tag=tag)
                self.assertEqual(plan.code, 0, str(plan))
                self.good(tag)

    def test_b6_the_lock_file_stays_the_same_file_and_no_child_inherits_it(self):
        inode = self.shell("stat -c %i /opt/mythex/lock")
        process = self.world.start("deploy", *ONE, tag=self.other())
        self.at(process, "stop")
        held = self.shell("for p in /proc/[0-9]*; do ls -l $p/fd 2>/dev/null | grep -q /opt/mythex/lock && tr '\\0' ' ' <$p/cmdline && echo; done")
        self.assertEqual(self.shell("flock -n /opt/mythex/lock echo free"), "")
        self.ended(End(process), 0)
        self.assertTrue(all(" agent" in line for line in held.splitlines() if line.strip()), held)
        self.assertEqual(self.shell("stat -c %i /opt/mythex/lock"), inode)
        self.wait_in_rotation()

    def test_b7_a_record_of_a_dead_process_is_not_believed(self):
        note = {"format": 1, "process": {"pid": 1, "start": 1, "boot": "another"}, "holder": {"who": "ghost", "what": "haunting", "since": 1, "run": None}}
        for name in ("lock-holder.json", "deploy-lock-holder.json"):
            self.shell(f"cat >/opt/mythex/{name} <<'X'\n{json.dumps(note)}\nX")
        status = self.world.run("lock", "status")
        self.ended(status, 0)
        self.assertNotIn("ghost", status.out)
        self.ended(self.deploy(self.other()), 0)
        self.wait_in_rotation()

    # === (3) rights and environment ===

    def refused(self, *words, tag=None, within=60, user=None, **kwargs):
        end = self.deploy(tag or "v2", **kwargs)
        self.ended(end, 4, "refused")
        self.assertLess(end.took, within)
        for word in words:
            self.assertRegex(end.message, word, str(end))
        return end

    def test_c01_a_user_without_any_right_is_told_all_of_them_at_once(self):
        self.shell("mv /opt/mythex/bin /opt/aside; touch /opt/mythex/lock; chmod 600 /opt/mythex/lock",
                   undo="rm -rf /opt/mythex/bin; mv /opt/aside /opt/mythex/bin; chmod 664 /opt/mythex/lock")
        self.config(user="nobody-special")
        self.refused("may not use Docker", "/opt/mythex may not be written", "lock /opt/mythex/lock", "folder /run/mythex")
        self.assertEqual(self.shell("ls -d /tmp/handover* 2>&1 | grep -v cannot"), "", "nothing is left in /tmp")

    def test_c02_what_root_has_left_is_named(self):
        self.shell("chown -R root:root /opt/mythex/bin /opt/mythex/releases", undo="chown -R deploy:deploy /opt/mythex")
        self.refused("/opt/mythex/releases may not be written")

    def test_c03_a_login_shell_that_talks_does_no_harm(self):
        self.shell("cp ~deploy/.bashrc ~deploy/.aside; (printf 'echo Welcome; echo HANDOVER-SAYS arch pdp11 >&2\\necho no newline -n\\n'; cat ~deploy/.aside) >~deploy/.bashrc",
                   undo="mv ~deploy/.aside ~deploy/.bashrc")
        self.ended(self.deploy(self.other()), 0)
        self.wait_in_rotation()

    def test_c04_a_login_shell_that_exits_is_said(self):
        self.shell("cp ~deploy/.bashrc ~deploy/.aside; echo 'echo go away; exit 0' >~deploy/.bashrc", undo="mv ~deploy/.aside ~deploy/.bashrc")
        self.refused("web-1", "go away")

    def dir_at(self, path):
        return lambda text: text.replace('dir = "/opt/mythex"', f'dir = "{path}"').replace("[lock]", f'[lock]\npath = "{path}/lock"')

    def on_all(self, script, undo):
        for server in SERVERS:
            self.shell(script, server, undo)

    def test_c05_a_full_disk_is_said_as_such(self):
        self.on_all("mkdir -p /opt/small && mount -t tmpfs -o size=4m,mode=755,uid=$(id -u deploy) none /opt/small", "umount /opt/small; rmdir /opt/small")
        self.config(change=self.dir_at("/opt/small"))
        end = self.refused("No space left", "/opt/small")
        self.assertNotIn("let the user that deploys own", str(end))

    def test_c06_a_folder_that_is_read_only_is_said_as_such(self):
        self.on_all("mkdir -p /opt/ro && mount -t tmpfs -o ro none /opt/ro", "umount /opt/ro; rmdir /opt/ro")
        self.config(change=self.dir_at("/opt/ro"))
        end = self.refused("(?i)read-only file system", "/opt/ro")
        self.assertNotIn("let the user that deploys own", str(end))

    def test_c07_a_folder_from_which_nothing_may_be_run_is_said_as_such(self):
        self.on_all("mkdir -p /opt/nx && mount -t tmpfs -o noexec,mode=755,uid=$(id -u deploy) none /opt/nx", "umount /opt/nx; rmdir /opt/nx")
        self.config(change=self.dir_at("/opt/nx"))
        end = self.refused("noexec")
        self.assertNotIn("glibc", str(end))

    def test_c08_compose_that_is_missing_old_or_v1(self):
        plugin = "/usr/lib/docker/cli-plugins/docker-compose"
        self.shell(f"mv {plugin} /opt/compose-aside", undo=f"mv -f /opt/compose-aside {plugin}")
        self.refused("Compose is not there", "docker-compose-plugin")
        self.shell(f"printf '#!/bin/sh\\ncase $1 in docker-cli-plugin-metadata) exec /opt/compose-aside \"$@\";; esac\\necho 2.17.3\\n' >{plugin}; chmod 755 {plugin}")
        self.refused("2.17.3", "2.20.0 is needed")
        self.shell(f"rm {plugin}; printf '#!/bin/sh\\necho 1.29.2\\n' >/usr/local/bin/docker-compose; chmod 755 /usr/local/bin/docker-compose",
                   undo="rm -f /usr/local/bin/docker-compose")
        self.refused("1.29.2, which is v1")

    def test_c09_an_engine_that_is_down(self):
        self.shell("systemctl stop docker.socket docker.service", server="web-3", undo="systemctl start docker.socket docker.service")
        self.refused("web-3", "(?i)docker")

    def test_c10_a_umask_of_077_shuts_nobody_out(self):
        self.shell("cp ~deploy/.bashrc ~deploy/.aside; (echo umask 077; cat ~deploy/.aside) >~deploy/.bashrc", undo="mv ~deploy/.aside ~deploy/.bashrc")
        self.shell("rm -rf /opt/mythex/lock /opt/mythex/bin")
        self.ended(self.deploy(self.other()), 0)
        self.assertEqual(self.shell("stat -c %a /opt/mythex/lock"), "664")
        self.assertEqual(set(self.shell("stat -c %a /opt/mythex/bin /opt/mythex/bin/handover-*").split()), {"755"})
        self.wait_in_rotation()

    def ssh(self, text, env=None):
        """Another ssh_config, with what is said here before the fleet's own."""
        at = Path(tempfile.mkdtemp()) / "config"
        at.write_text(text + Path(self.world.fleet["ssh_config"]).read_text())
        return {"HANDOVER_SSH_CONFIG": str(at)}

    def test_c11_an_odd_port_and_a_jump_host(self):
        address = next(s["address"] for s in self.world.fleet["servers"] if s["name"] == "web-1")
        self.shell("/usr/sbin/sshd -p 2222 -o PidFile=/run/odd.pid", undo="kill $(cat /run/odd.pid)")
        env = self.ssh(f"Host web-1\n  HostName {address}\n  Port 2222\n  HostKeyAlias web-1\n")
        self.ended(self.world.run("verify", env=env), 0)
        config = self.ssh("")["HANDOVER_SSH_CONFIG"]
        env = self.ssh(f"Host web-1\n  ProxyCommand ssh -F {config} -W %h:22 web-2\n")
        self.ended(self.world.run("verify", env=env), 0)

    def test_c12_host_keys(self):
        known = Path(tempfile.mkdtemp()) / "known"
        keys = Path(self.world.fleet["ssh_config"]).parent / "known_hosts"
        env = self.ssh(f"Host *\n  UserKnownHostsFile {known}\n")
        without = "".join(line for line in keys.read_text().splitlines(True) if not line.startswith("web-1 "))
        known.write_text(without)
        end = self.deploy("v2", env=env)
        self.ended(end, 4, "refused")
        self.assertIn("accept-new", end.message)
        accept = lambda text: text.replace("[balancer]", '[ssh]\nhost_keys = "accept-new"\n\n[balancer]', 1)
        self.config(change=accept)
        self.ended(self.world.run("verify", env=env), 0)
        self.assertIn("web-1", known.read_text())
        wrong = next(line for line in keys.read_text().splitlines() if line.startswith("web-2 ")).replace("web-2 ", "web-1 ")
        known.write_text(without + wrong + "\n")
        for change in (accept, lambda text: text):
            self.config(change=change)
            end = self.deploy("v2", env=env)
            self.ended(end, 4, "refused")
            self.assertIn("ssh-keygen -R", end.message)

    def test_c13_two_apps_do_not_share_a_folder(self):
        self.config(change=lambda text: text.replace('app = "mythex"', 'app = "other"'))
        self.refused("(?i)belongs to .*mythex")

    def test_c14_stale_control_folders_go_and_live_ones_stay(self):
        stale = Path(tempfile.mkdtemp(prefix="handover-ssh-"))
        (stale / ".ssh-connection").mkdir()
        os.utime(stale, (1, 1))
        process = self.world.start("deploy", *ONE, tag=self.other())
        self.at(process, "out")
        self.assertFalse(stale.exists())
        self.ended(self.world.run("lock", "status"), 0)
        self.ended(End(process), 0)
        self.wait_in_rotation()

    # === (4) releases ===

    def release(self, tag, *more, code=0, **kwargs):
        end = self.deploy(tag, *more, **kwargs)
        self.ended(end, code)
        return end.summary["release"]

    def image(self, tag, *pairs):
        sh("bash", str(HERE / "app" / "build.sh"), tag, *pairs)

    def test_d01_a_tag_that_moved_is_a_new_release_and_a_name_is_no_part_of_it(self):
        self.image("moves", "A=1")
        one = self.release("moves", "--name", "one")
        self.wait_in_rotation()
        end = self.deploy("moves", "--name", "two")
        self.ended(end, 0, "unchanged")
        self.assertEqual(end.summary["release"] or one, one)
        self.image("moves", "A=2")
        self.assertNotEqual(self.release("moves"), one)
        self.wait_in_rotation()
        self.good("v1")

    def test_d02_odd_values_arrive_unchanged(self):
        odd = {"ODD": "a$b ${c} $$d # no comment 'single' \"double\" \\n back\\slash é\ttab", "LINES": "one\ntwo: x\n"}
        self.compose(lambda text: text.replace("      SERVICE: publish-worker", "      SERVICE: publish-worker\n      ODD: ${ODD}\n      LINES: ${LINES}"))
        self.config(change=lambda text: text.replace('vars = ["TAG"]', 'vars = ["TAG", "ODD", "LINES"]'))
        end = self.deploy(self.other(), env=odd.items())
        if end.code:
            self.ended(end, 2)
            return
        seen = json.loads(self.shell("docker inspect $(docker ps -q --filter label=com.docker.compose.service=publish-worker)"))[0]["Config"]["Env"]
        for name, value in odd.items():
            self.assertIn(f"{name}={value}", seen)
        self.wait_in_rotation()

    def test_d03_secrets_stay_in_files_of_mode_0600(self):
        self.write(".env.production", f"API_KEY={SECRET}\nOTHER='quoted {SECRET} $x'\n")
        seen, over = set(), threading.Event()

        def watch():
            while not over.is_set():
                seen.update(self.shell(f"ps -eo args e ww | grep -v grep | grep -v /bin/app | grep -v publish-worker | grep -F {SECRET}").splitlines())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            end = self.deploy(self.other(), "-v")
        finally:
            over.set()
            watcher.join()
        self.ended(end, 0)
        self.assertNotIn(SECRET, end.out + end.err)
        self.assertEqual({line for line in seen if "app" not in line.split()[0]}, set())
        files = self.shell(f"grep -rlF {SECRET} /opt/mythex /tmp /run/mythex | xargs -r stat -c '%a %n'").splitlines()
        self.assertTrue(files and all(line.startswith("600 ") for line in files), files)
        self.wait_in_rotation()

    def test_d04_a_broken_env_file_is_said_without_its_content(self):
        self.write(".env.production", f"GOOD=1\nBAD KEY={SECRET}\n")
        end = self.deploy(self.other())
        self.assertIn(end.code, (2, 4), str(end))
        self.assertNotIn(SECRET, end.out + end.err)
        self.assertIn(".env.production", end.message)

    def test_d05_a_definition_with_everything_in_it(self):
        self.write("more.yaml", "services:\n  included:\n    image: registry.e2e:5000/mythex:${TAG}\n    restart: unless-stopped\n    environment: {SERVICE: included}\n")
        self.write("base.yaml", "services:\n  base:\n    image: registry.e2e:5000/mythex:${TAG}\n    restart: unless-stopped\n    environment: {FROM_BASE: '1'}\n")
        extra = """
  migrate:
    <<: *common
    restart: "no"
    environment: {ONCE: "1"}
  many:
    <<: *common
    deploy: {replicas: 3, update_config: {parallelism: 1}}
    depends_on: {migrate: {condition: service_completed_successfully}}
    healthcheck: {test: ["CMD", "app", "--self-check"], interval: 1s, start_period: 1s}
  named:
    <<: *common
    container_name: mythex-named
    depends_on: {many: {condition: service_healthy}}
  extended:
    extends: {file: base.yaml, service: base}
  debug:
    <<: *common
    profiles: [debug]
"""
        self.compose(lambda text: "include: [more.yaml]\n" + text + extra)
        names = ["many", "named", "extended", "included"]
        services = "".join(f'\n[[service]]\nname = "{n}"\nverify = {{ exec = ["publish-worker", "--self-check"] }}\nshutdown = "5s"\ndeadline = "20s"\n' for n in names)
        self.config(change=lambda text: text.replace('files = ["gateway.toml"]', 'files = ["gateway.toml", "more.yaml", "base.yaml"]').replace("[measure]", services + "\n[measure]"))
        mark = self.world.load.mark()
        end = self.deploy(self.other())
        self.ended(end, 0, "deployed")
        self.nothing_lost(mark, end)
        self.assertIn("update_config", end.out)
        running = self.shell("docker ps --format '{{.Names}}'").split()
        self.assertEqual(sum(name.startswith("mythex-many-") for name in running), 3)
        self.assertIn("mythex-named", running)
        self.assertFalse(any("debug" in name for name in running))
        end = self.deploy(self.label()[0])
        self.ended(end, 0, "unchanged")
        # All of it goes again with the next release.
        for name in ("compose.yaml",):
            self.write(name, (HERE / "app" / name).read_text())
        self.config()
        self.good()
        left = self.shell("docker ps -a --format '{{.Names}}'").split()
        self.assertEqual(sorted(left), ["mythex-api-1", "mythex-gateway-1", "mythex-orchestrator-1", "mythex-publish-worker-1"])

    def test_d06_definitions_that_cannot_be_a_release(self):
        cases = {
            "is built on the spot": lambda t: t + "\n  built:\n    build: .\n",
            "is not published": lambda t: t.replace("./gateway.toml", "./missing.toml"),
            "not set": lambda t: t.replace("SERVICE: orchestrator", "SERVICE: ${NOBODY_SET_ME}"),
            "(?i)yaml|mapping|additional|not allowed": lambda t: t + "\n  bad:\n    imagee: x\n",
        }
        for word, change in cases.items():
            with self.subTest(word):
                self.compose(change)
                end = self.deploy(self.other())
                self.assertIn(end.code, (2, 4), str(end))
                self.assertRegex(end.message, word)

    def test_d07_a_bind_mount_whose_source_is_missing_is_named(self):
        self.compose(lambda text: text.replace("./gateway.toml:/etc/gateway.toml:ro", "/srv/nowhere/gateway.toml:/etc/gateway.toml:ro"))
        end = self.deploy(self.other())
        self.assertIn("/srv/nowhere", end.out + end.err)
        self.restore.append(lambda: self.shell("rm -rf /srv/nowhere"))
        self.wait_in_rotation()

    def test_d08_the_same_variable_in_the_env_file_and_in_the_definition_is_fine(self):
        self.write(".env.production", "SHUTDOWN=8\nA=b\n")
        self.ended(self.deploy(self.other()), 0)
        self.wait_in_rotation()

    def test_d09_a_container_of_somebody_else_in_the_projects_network_stops_nothing(self):
        self.shell("docker run -d --name guest --network mythex_default $(docker ps --format '{{.Image}}' | head -1)", undo="docker rm -f guest")
        end = self.deploy(self.other())
        self.ended(end, 0)
        self.wait_in_rotation()

    def test_d13_a_current_that_is_no_longer_whole_is_no_dead_end(self):
        self.shell("echo >>/opt/mythex/current/gateway.toml")
        mark = self.world.load.mark()
        before = self.label()
        end = self.deploy("v3")
        self.ended(end, 5, "rolled_back")
        self.assertEqual(self.label(), before, "what ran was saved and came back")
        self.wait_in_rotation()
        end = self.deploy(self.other())
        self.ended(end, 0, "deployed")
        self.nothing_lost(mark, end)
        self.wait_in_rotation()

    def registry(self, action, undo):
        container = self.world.fleet["registry"]["container"]
        self.restore.append(lambda: (sh("docker", undo, container), time.sleep(1)))
        sh("docker", action, container)

    def test_d10_a_registry_that_dies_after_the_pull_is_not_missed(self):
        process = self.world.start("deploy", *ONE, tag="v3")
        for line in process.stdout:
            if "staged and pulled" in line:
                break
        self.registry("pause", "unpause")
        before = self.label()
        end = End(process)
        self.ended(end, 5, "rolled_back")
        self.assertEqual(self.label(), before)
        self.wait_in_rotation()

    def test_d11_a_registry_that_is_down_or_silent_is_said_in_time(self):
        for action, undo in (("pause", "unpause"), ("stop", "start")):
            with self.subTest(action):
                before = self.label()
                self.registry(action, undo)
                end = self.deploy(self.other())
                self.restore.pop()()
                self.ended(end, 4, "refused")
                self.assertLess(end.took, 90)
                self.assertIn("registry.e2e", end.message)
                self.assertEqual(self.label(), before)
        fleet("up")
        self.world.fleet = json.loads((Path(self.world.fleet["ssh_config"]).parent / "fleet.json").read_text())

    def test_d12_old_releases_go_and_those_with_a_name_stay(self):
        for n in range(4):
            self.write("gateway.toml", f"greeting = \"{n}\"\n")
            self.release("v1" if n % 2 else "v2")
            self.wait_in_rotation()
        self.assertLessEqual(int(self.shell("ls /opt/mythex/releases | wc -l")), 3)
        for name in ("current", "previous"):
            self.assertEqual(self.shell(f"test -e /opt/mythex/{name}/manifest.json && echo there"), "there")
        self.assertEqual(self.shell("ls -A /opt/mythex /opt/mythex/releases | grep -E 'tmp|resolve|broken'"), "")

    # === (5) commands ===

    def test_e1_a_freeze_outlives_a_boot_and_says_all_about_itself(self):
        self.ended(self.world.run("lock", "acquire", "-m", "the auditors are here"), 0)
        try:
            fleet("reboot", "web-1")
            status = self.world.run("lock", "status")
            self.ended(status, 0)
            self.assertEqual(status.out.count("the auditors are here"), 3)
            end = self.deploy(self.other())
            self.ended(end, 3, "refused")
            for word in ("the auditors are here", "@", "since"):
                self.assertIn(word, end.message)
        finally:
            self.ended(self.world.run("lock", "release"), 0)
        self.wait_in_rotation()

    def test_e2_a_deploy_that_waits_honours_a_freeze_that_came_meanwhile(self):
        first = self.world.start("deploy", *ONE, tag=self.other())
        self.at(first, "flip")
        second = self.world.start("deploy", *ONE, "--wait", "2m", tag="v1")
        time.sleep(3)
        self.ended(self.world.run("lock", "acquire", "-m", "stop it"), 0)
        try:
            self.ended(End(first), 0)
            end = End(second)
            self.ended(end, 3, "refused")
            self.assertIn("stop it", end.message)
        finally:
            self.ended(self.world.run("lock", "release"), 0)
        self.wait_in_rotation()

    def test_e3_a_deploy_waits_its_turn(self):
        first = self.world.start("deploy", *ONE, tag=self.other())
        self.at(first, "flip")
        second = self.world.start("deploy", *ONE, "--wait", "2m", tag="v1")
        self.ended(End(first), 0)
        self.ended(End(second), 0)
        self.assertEqual(self.label(), ["v1"])
        self.wait_in_rotation()

    def test_e4_verify_sees_what_is_wrong(self):
        self.ended(self.world.run("verify"), 0)
        self.shell("docker stop mythex-gateway-1", undo="docker start mythex-gateway-1")
        end = self.world.run("verify")
        self.ended(end, 1)
        self.assertRegex(end.message, "web-1: mythex-gateway-1 ended")
        self.assertNotIn("web-2", end.message)

    # === (6) releases that are no good ===

    def bad(self, tag, *pairs, words):
        """Brought to one server, found out there, undone; the message says where, when and what."""
        self.image(tag, *pairs)
        mark, before = self.world.load.mark(), self.label()
        end = self.deploy(tag, "--start-over")
        self.ended(end, 5)
        error = end.summary["error"]
        self.assertEqual(error["server"], "web-1", str(end))
        self.assertIn(error["step"], ("start", "verify"), str(end))
        for word in words:
            self.assertIn(word, error["message"], str(end))
        self.assertEqual(self.label(), before, "what ran before runs again")
        self.unlocked()
        self.wait_in_rotation()
        self.nothing_lost(mark)

    @long
    def test_f1_containers_that_crash_again_and_again(self):
        self.bad("f1", "CRASH_AFTER=0.5", words=["-1 restarts again and again"])

    @long
    def test_f2_an_answer_of_the_old_version(self):
        self.bad("f2", "WRONG_VERSION=another", words=["api", "another"])

    @long
    def test_f3_two_hundred_and_dead_after_ten_seconds(self):
        self.image("f3", "CRASH_AFTER=10")
        mark, before = self.world.load.mark(), self.label()
        end = self.deploy("f3", "--start-over")
        # With these short numbers the deploy may be over by then; what it lost is counted all the same.
        self.assertIn(end.code, (5, 7), str(end))
        if end.code == 5:
            self.assertEqual(end.summary["error"]["server"], "web-1")
            self.assertEqual(self.label(), before)
        else:
            self.ended(self.deploy("v1"), 0)
        self.unlocked()
        self.wait_in_rotation()
        total, lost = self.world.load.since(mark)
        print(f"\n  died after 10 s: exit {end.code}, lost {len(lost)} of {total}", file=sys.stderr)

    @long
    def test_f4_what_cannot_start_for_want_of_disk(self):
        grace = "    stop_grace_period: 10s\n"
        self.compose(lambda text: text.replace(grace, grace + "    tmpfs: ['/bin:size=4k']\n", 1))
        before, end = self.label(), self.deploy(self.other(), "--start-over")
        self.ended(end, 5)
        self.assertEqual(end.summary["error"]["server"], "web-1")
        self.assertIn(end.summary["error"]["step"], ("start", "verify"))
        self.assertEqual(self.label(), before)
        self.unlocked()
        self.wait_in_rotation()

    @long
    def test_f5_what_stops_only_by_sigkill(self):
        self.image("f5", "IGNORE_TERM=1")
        self.ended(self.deploy("f5", "--start-over"), 0)
        mark = self.world.load.mark()
        end = self.deploy("v1")
        self.ended(end, 0)
        self.assertIn("was killed after", end.out)
        self.nothing_lost(mark, end)


class AtOnce(unittest.TextTestResult):
    """Says what failed when it fails: the whole of it takes long."""

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.stream.writeln(self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.stream.writeln(self.errors[-1][1])


def main():
    suite.BINARY = str(Path(sys.argv[1]).resolve())
    words = sys.argv[2:]
    names = unittest.TestLoader().getTestCaseNames(Attacks)
    if words:  # in the order in which they are named
        names = [name for word in words for name in names if word in name]
    result = unittest.TextTestRunner(verbosity=2, resultclass=AtOnce).run(unittest.TestSuite(Attacks(name) for name in names))
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
