"""Why: every call that we make, asked by boto3 of our simulator and of moto: the same members, of the same types.

What only one of them has is listed here with the reason, so that nothing is missed silently.
"""
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

# moto leaves these out or answers them where AWS does not (AWS API model, examples).
ONLY_OURS = {
    "TargetHealthDescriptions[].AdministrativeOverride", "TargetHealthDescriptions[].AdministrativeOverride.State",
    "TargetHealthDescriptions[].AdministrativeOverride.Reason", "TargetHealthDescriptions[].AdministrativeOverride.Description",
    "TargetHealthDescriptions[].Target.AvailabilityZone",
    "TargetHealthDescriptions[].TargetHealth.Reason", "TargetHealthDescriptions[].TargetHealth.Description",
    "TargetGroups[].IpAddressType", "LoadBalancers[].IpAddressType", "LoadBalancers[].Scheme",
    "LoadBalancers[].AvailabilityZones[].LoadBalancerAddresses",
}
ONLY_MOTO = {
    # A load balancer of moto's is made with subnets, certificates and owners that the lab has no use for.
    "LoadBalancers[].AvailabilityZones[].SubnetId", "LoadBalancers[].AvailabilityZones[].LoadBalancerAddresses",
    "LoadBalancers[].CanonicalHostedZoneId", "LoadBalancers[].SecurityGroups", "LoadBalancers[].SecurityGroups[]",
    "TargetHealthDescriptions[].TargetHealth.Reason", "TargetHealthDescriptions[].TargetHealth.Description",
}


def client(url):
    return boto3.client("elbv2", endpoint_url=url, config=Config(retries={"max_attempts": 1}, proxies={}))


def shape(value, path="", seen=None):
    seen = {} if seen is None else seen
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "ResponseMetadata":
                shape(inner, f"{path}.{key}" if path else key, seen)
    elif isinstance(value, list):
        seen[path] = "list"
        for inner in value:
            shape(inner, path + "[]", seen)
    elif path:
        seen[path] = type(value).__name__
    return seen


def prepare_moto(api):
    ec2 = boto3.client("ec2", endpoint_url=sys.argv[2], config=Config(proxies={}))
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{n}.0/24", AvailabilityZone=f"eu-central-1{z}")["Subnet"]["SubnetId"]
               for n, z in enumerate("ab")]
    balancer = api.create_load_balancer(Name="peers", Subnets=subnets)["LoadBalancers"][0]["LoadBalancerArn"]
    group = api.create_target_group(Name="peers", Protocol="HTTP", Port=80, VpcId=vpc, HealthCheckPath="/health", HealthCheckIntervalSeconds=5,
                                    HealthCheckTimeoutSeconds=2, HealthyThresholdCount=2, UnhealthyThresholdCount=2, Matcher={"HttpCode": "200"})
    arn = group["TargetGroups"][0]["TargetGroupArn"]
    api.create_listener(LoadBalancerArn=balancer, Protocol="HTTP", Port=80, DefaultActions=[{"Type": "forward", "TargetGroupArn": arn}])
    image = ec2.describe_images()["Images"][0]["ImageId"]
    instance = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, SubnetId=subnets[0])["Instances"][0]["InstanceId"]
    api.register_targets(TargetGroupArn=arn, Targets=[{"Id": instance}])
    return instance


def answers(api, target):
    groups = api.describe_target_groups(Names=["peers"])
    arn = groups["TargetGroups"][0]["TargetGroupArn"]
    balancer = groups["TargetGroups"][0]["LoadBalancerArns"][0]
    listeners = api.describe_listeners(LoadBalancerArn=balancer)
    yield "DescribeTargetGroups", groups
    yield "DescribeTargetGroups by ARN", api.describe_target_groups(TargetGroupArns=[arn])
    yield "DescribeTargetHealth", api.describe_target_health(TargetGroupArn=arn)
    yield "DescribeTargetGroupAttributes", {"Attributes": [{k: a[k] for k in ("Key", "Value")} for a in api.describe_target_group_attributes(TargetGroupArn=arn)["Attributes"]]}
    yield "DescribeLoadBalancers", api.describe_load_balancers(LoadBalancerArns=[balancer])
    yield "DescribeLoadBalancerAttributes", api.describe_load_balancer_attributes(LoadBalancerArn=balancer)
    yield "DescribeListeners", {"Listeners": [{k: v for k, v in l.items() if k in ("ListenerArn", "LoadBalancerArn", "Port", "Protocol")} for l in listeners["Listeners"]]}
    yield "DeregisterTargets", api.deregister_targets(TargetGroupArn=arn, Targets=[{"Id": target, "Port": 80}])
    yield "RegisterTargets", api.register_targets(TargetGroupArn=arn, Targets=[{"Id": target, "Port": 80}])


def errors(api):
    missing = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/none/0123456789abcdef"
    questions = {
        "an unknown name": lambda: api.describe_target_groups(Names=["none"]),
        "an unknown group's health": lambda: api.describe_target_health(TargetGroupArn=missing),
    }
    for name, ask in questions.items():
        try:
            ask()
            yield name, None
        except ClientError as error:
            yield name, (error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"])


def attribute_values(answer):
    return {a["Key"] for a in answer["Attributes"]}


def main():
    ours, moto = client(sys.argv[1]), client(sys.argv[2])
    instance = prepare_moto(moto)
    wrong, compared = [], 0
    theirs = dict(answers(moto, instance))
    for name, answer in answers(ours, "i-00000000000000001"):
        mine, other = shape(answer), shape(theirs[name])
        compared += len(mine)
        for path in sorted(set(mine) | set(other)):
            if path in mine and path in other:
                if mine[path] != other[path]:
                    wrong.append(f"{name}: {path} is {mine[path]} here and {other[path]} there")
            elif path in mine and path not in ONLY_OURS:
                wrong.append(f"{name}: only ours has {path}")
            elif path in other and path not in ONLY_MOTO:
                wrong.append(f"{name}: only moto has {path}")
        if name == "DescribeTargetGroupAttributes":
            needed = {"deregistration_delay.timeout_seconds", "stickiness.enabled", "load_balancing.algorithm.type"}
            missing = needed - attribute_values(answer)
            wrong += [f"{name}: ours lacks {key}" for key in missing]
    their_errors = dict(errors(moto))
    for name, answer in errors(ours):
        compared += 1
        if answer != their_errors[name]:
            wrong.append(f"{name}: {answer} here, {their_errors[name]} there")
    print("\n".join(wrong))
    print(f"{compared} members compared, {len(wrong)} differ")
    sys.exit(bool(wrong))


main()
