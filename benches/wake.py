"""Why: see wake.sh, which starts this."""

import json
import pathlib
import socket
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "sleep"))
import world  # noqa: E402


def accepts(address):
    """Straight to the container: Docker's proxy accepts for whoever does not listen yet."""
    try:
        socket.create_connection(address, timeout=0.05).close()
        return True
    except OSError:
        return False


def by_hand(made, name):
    began = time.monotonic()
    world.run("docker", "start", name)
    address = world.run("docker", "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", name).strip()
    while not accepts((address, 9000)):
        time.sleep(0.002)
    took = time.monotonic() - began
    world.run("docker", "stop", name)
    return took


def main(binary, seconds, rounds):
    with world.Server(binary) as made:
        name = made.container("cms", START_AFTER=int(seconds * 1000))
        own = [by_hand(made, name) for _ in range(rounds)]
        made.host("cms.test", "cms", 'services = ["cms"], after = "1h"')
        made.start()
        made.becomes("away")
        waited = []
        for _ in range(rounds):
            began = time.monotonic()
            assert made.get("/x").splitlines()[0].endswith("200 OK")
            waited.append(time.monotonic() - began)
            made.sleep("now", "cms.test")
        log = (made.path / "app" / "asleep" / "cms.test.log").read_text().splitlines()
        wakes = [line for line in map(json.loads, log) if line["what"] == "woke"]
    print(f"by hand, `docker start` until it accepts: {statistics.median(own):.3f} s (median of {rounds})")
    print("request to answer   decision  container  accept  answer  (seconds)")
    for whole, parts in zip(waited, wakes):
        figures = [parts["decision"], parts["container"], parts["accept"], parts["answer"]]
        print(f"{whole:17.3f}   " + "  ".join(f"{figure:8.3f}" for figure in figures))
    over = statistics.median(waited) - statistics.median(own)
    print(f"through the gateway: {statistics.median(waited):.3f} s, {over * 1000:+.0f} ms beside the container's own start")
    print(f"the story's pipeline for the same start: about {23 + seconds:.0f} s (35 s were seen for a pod that takes 12 s)")
    return 0 if over <= 0.2 else 1


sys.exit(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
