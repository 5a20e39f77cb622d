"""`check --live` and `provision` against moto, an ELBv2 API by somebody else: boto3 makes a load balancer with a group that says
other numbers than deploy.toml, and afterwards says what became of it.

moto has none of AWS's rules between settings (the simulator's tests have those) and does not list `target_group_health.*`.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import boto3

ROOT = Path(__file__).resolve().parents[2]
binary, moto = Path(sys.argv[1]).resolve(), sys.argv[2]
clients = {name: boto3.client(name, endpoint_url=moto, region_name="eu-central-1") for name in ("ec2", "elbv2")}
ec2, elb = clients["ec2"], clients["elbv2"]


def prepare():
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{at}.0/24", AvailabilityZone=f"eu-central-1{zone}")["Subnet"]["SubnetId"]
        for at, zone in enumerate("ab")
    ]
    front = elb.create_load_balancer(Name="front", Subnets=subnets)["LoadBalancers"][0]["LoadBalancerArn"]
    group = elb.create_target_group(
        Name="mythex-api", Protocol="HTTP", Port=8080, VpcId=vpc, HealthCheckPath="/old", HealthCheckIntervalSeconds=30
    )["TargetGroups"][0]["TargetGroupArn"]
    actions = [{"Type": "forward", "TargetGroupArn": group}]
    elb.create_listener(LoadBalancerArn=front, Protocol="HTTP", Port=80, DefaultActions=actions)
    return front, group


def run(folder, *args):
    env = dict(os.environ, HANDOVER_SSH_CONFIG="ssh")
    done = subprocess.run(
        [binary, *args, "--output", "json"], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    lines = done.stdout.strip().splitlines()
    assert lines, done.stderr
    return json.loads(lines[-1])


def says(front, group):
    described = elb.describe_target_groups(TargetGroupArns=[group])["TargetGroups"][0]
    attributes = {
        row["Key"]: row["Value"] for row in elb.describe_target_group_attributes(TargetGroupArn=group)["Attributes"]
    }
    own = {row["Key"]: row["Value"] for row in elb.describe_load_balancer_attributes(LoadBalancerArn=front)["Attributes"]}
    return (
        described["HealthCheckPath"],
        described["HealthCheckIntervalSeconds"],
        described["HealthCheckTimeoutSeconds"],
        described["UnhealthyThresholdCount"],
        described["HealthyThresholdCount"],
        attributes["deregistration_delay.timeout_seconds"],
        own.get("idle_timeout.timeout_seconds"),
    )


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    text = (ROOT / "deploy.toml").read_text()
    text = text.replace("[[balancer.group]]", f'endpoint = "{moto}"\nidle_timeout = "70s"\n\n[[balancer.group]]')
    for n in (1, 2, 3):
        text = text.replace(f'"deploy@web-{n}"', f'"deploy@127.0.0.{n}"')
    (folder / "deploy.toml").write_text(text)
    (folder / "compose.yaml").write_text((ROOT / "compose.yaml").read_text())
    (folder / "ssh").write_text("Host *\n  Port 9\n")
    front, group = prepare()

    live = run(folder, "check", "--live")
    told = {row["key"] for row in live["live"]["differences"]}
    assert live["exit"] == 4 and "balancer.idle_timeout" in told, live["live"]
    assert "balancer.group.mythex-api.health.interval" in told, told

    shown = run(folder, "provision")
    assert (shown["exit"], shown["outcome"]) == (0, "differs"), shown
    assert says(front, group)[:2] == ("/old", 30), "looking changes nothing"

    done = run(folder, "provision", "--apply", "--yes")
    assert (done["exit"], done["outcome"]) == (0, "applied"), done
    assert says(front, group) == ("/health", 5, 2, 2, 2, "30", "70"), says(front, group)

    again = run(folder, "provision", "--apply", "--yes")
    assert (again["exit"], again["outcome"], again["changed"]) == (0, "unchanged", []), again
    live = run(folder, "check", "--live")
    assert live["live"]["differences"] == [], live["live"]

    exported = run(folder, "provision", "--export")["export"]
    head, rest = text.split("[balancer]", 1)
    (folder / "deploy.toml").write_text(head + exported + "\n[drain]" + rest.split("\n[drain]", 1)[1])
    assert run(folder, "provision")["outcome"] == "unchanged"
print(f"moto: provision changed {len(done['changed'])} settings, then none; check --live agrees")
