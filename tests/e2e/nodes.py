#!/usr/bin/env python3
"""Why: a drain that is proved node by node must be proved on real servers, whose gateway sees each node of the balancer by an address
of its own, through Docker's networks as they are.

nodes.py BINARY [NAME...]   run all cases, or those whose name contains one of the words
"""
import ipaddress
import json
import os
import sys
import unittest
from pathlib import Path

import alone
import suite
from suite import SERVERS, sh


def bridge():
    """The fleet's network on this machine: its interface, and two addresses in it that nobody has."""
    state = Path(os.environ.get("HANDOVER_E2E_DIR", suite.HERE.parent.parent / "target" / "e2e"))
    network = json.loads(sh("docker", "network", "inspect", (state / "network").read_text().strip()).stdout)[0]
    subnet = ipaddress.ip_network(network["IPAM"]["Config"][0]["Subnet"])
    return f"br-{network['Id'][:12]}", subnet, [str(subnet[201]), str(subnet[202])]


class World(alone.World):
    servers = SERVERS

    def configure(self):
        by = f'by = "gateway"\nnodes = {{ from = ["{self.subnet}"] }}'
        suite.World.configure(self, drain=by, change=lambda text: alone.fronted(text).replace(
            "http://127.0.0.1:8080/version", "http://127.0.0.1:8081/version"))


class Cases(suite.Base):
    """In order: each case goes on from where the one before left the fleet."""

    @classmethod
    def setUpClass(cls):
        suite.fleet("up")
        suite.fleet("reset")
        cls.interface, World.subnet, World.sources = bridge()
        for address in World.sources:
            sh("ip", "address", "add", f"{address}/32", "dev", cls.interface)
        cls.world = World()

    @classmethod
    def tearDownClass(cls):
        cls.world.close()
        for address in World.sources:
            sh("ip", "address", "del", f"{address}/32", "dev", cls.interface, check=False)

    def test_01_the_first_release(self):
        self.ended(suite.End(self.world.start("deploy", "--first", tag="v1")), 0, "deployed")
        self.wait_in_rotation()
        status = suite.End(self.world.start("status"))
        for server in status.summary["servers"]:
            seen = json.dumps(server["nodes"])
            for address in World.sources:
                self.assertIn(address, seen, server["name"])

    def test_02_every_node_is_proved_and_no_settle_is_waited_for(self):
        plan = suite.End(self.world.start("plan", tag="v2"))
        self.assertEqual(plan.summary["proof"], "nodes", plan)
        mark = self.world.load.mark()
        end = suite.End(self.world.start("deploy", tag="v2"))
        self.ended(end, 0, "deployed")
        self.nothing_lost(mark, end)
        told = {(e["server"], e["step"]): e.get("detail") or "" for e in end.events
                if e.get("event") == "step" and e["state"] == "proved" and e["step"] in ("settle", "settle_in")}
        self.assertEqual(len(told), 2 * len(SERVERS))
        for place, detail in told.items():
            self.assertIn("2 nodes", detail, place)
        seconds, floor = end.summary["seconds"], end.summary["floor_seconds"]
        self.assertEqual((end.summary["floor"]["settle_out"], end.summary["floor"]["settle_in"]), (0, 0))
        print(f"\n{seconds:.1f} s against a floor of {floor:.1f} s without settle ({seconds / floor:.2f})", file=sys.stderr)

    @unittest.skipUnless(os.environ.get("HANDOVER_LONG"), "how long it takes is told in docs/performance.md")
    def test_03_by_word_and_settle_it_takes_longer(self):
        suite.World.configure(self.world, drain=suite.BY_FILE, change=lambda text: alone.fronted(text).replace(
            "http://127.0.0.1:8080/version", "http://127.0.0.1:8081/version"))
        mark = self.world.load.mark()
        end = suite.End(self.world.start("deploy", tag="v1"))
        self.ended(end, 0, "deployed")
        self.nothing_lost(mark, end)
        print(f"\n{end.summary['seconds']:.1f} s by word and settle", file=sys.stderr)


if __name__ == "__main__":
    suite.main(Cases)
