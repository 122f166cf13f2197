"""Breaks each rule in turn, because a rule that cannot be broken would prove nothing."""

import pytest

import chart
import rules


def pod(documents, name):
    return next(spec for its_name, _, spec in rules.pods(documents) if its_name == f"tandem-{name}")


def container(documents, name):
    return next(one for place, one, _, _ in rules.containers(documents) if place.endswith(f"/{name}"))


def find(documents, kind, name=None):
    return next(one for one in rules.of_kind(documents, kind) if name is None or rules.name_of(one) == f"tandem-{name}")


def set_argument(one, flag, value):
    one["args"] = [argument for argument in one["args"] if not argument.startswith(f"--{flag}=")] + [f"--{flag}={value}"]


BREAKS = {
    "names_are_unique": [lambda d: d.append(d[0])],
    "names_fit_dns_labels": [lambda d: d[0]["metadata"].update(name="n" * 64)],
    "names_and_labels_are_text": [
        lambda d: find(d, "Service", "router")["metadata"]["labels"].update({"app.kubernetes.io/instance": False}),
        lambda d: find(d, "PodMonitor")["spec"]["selector"]["matchLabels"].update({"app.kubernetes.io/instance": 12}),
        lambda d: find(d, "PrometheusRule")["metadata"].update(name=True)],
    "nothing_of_the_host": [
        lambda d: pod(d, "workers").update(hostIPC=True),
        lambda d: pod(d, "workers").update(hostPID=True),
        lambda d: container(d, "verifier")["securityContext"].update(privileged=True)],
    "pods_are_confined": [
        lambda d: pod(d, "router")["securityContext"].update(runAsNonRoot=False),
        lambda d: pod(d, "router").pop("automountServiceAccountToken"),
        lambda d: pod(d, "test-generate")["securityContext"].pop("seccompProfile")],
    "containers_are_confined": [
        lambda d: container(d, "drafter")["securityContext"].update(readOnlyRootFilesystem=False),
        lambda d: container(d, "generate")["securityContext"].pop("capabilities")],
    "containers_have_resources": [lambda d: container(d, "drafter")["resources"]["limits"].pop("memory")],
    "images_have_a_version": [
        lambda d: container(d, "router").update(image="registry:5000/tandem"),
        lambda d: container(d, "router").update(image="tandem:latest")],
    "containers_are_probed": [
        lambda d: container(d, "router").pop("livenessProbe"),
        lambda d: container(d, "drafter").update(readinessProbe=container(d, "drafter")["startupProbe"]),
        lambda d: container(d, "verifier")["startupProbe"]["httpGet"].update(port="drafter-admin"),
        lambda d: container(d, "verifier")["startupProbe"]["httpGet"].update(scheme="HTTPS")],
    "slow_loads_are_waited_for": [lambda d: container(d, "drafter")["startupProbe"].update(failureThreshold=30)],
    "rollouts_wait_for_slow_loads": [
        lambda d: find(d, "Deployment", "router")["spec"].pop("progressDeadlineSeconds"),
        lambda d: find(d, "Deployment", "router")["spec"].update(progressDeadlineSeconds=1799),
        lambda d: find(d, "Deployment", "workers")["spec"].update(progressDeadlineSeconds=1799),
        lambda d: pod(d, "workers").update(initContainers=[container(d, "verifier")])],
    "streams_are_waited_for": [lambda d, name=name: pod(d, name).update(terminationGracePeriodSeconds=300)
                               for name in ("router", "workers")],
    "mounts_have_volumes": [
        lambda d: pod(d, "workers")["volumes"].pop(),
        lambda d: pod(d, "workers")["volumes"].append({"name": "idle", "emptyDir": {"sizeLimit": "1Gi"}}),
        lambda d: container(d, "router")["volumeMounts"].pop(0)],
    "files_are_mounted": [lambda d: set_argument(container(d, "verifier"), "model", "/models/target")],
    "weights_are_read_only": [lambda d: container(d, "verifier")["volumeMounts"].append({"name": "models", "mountPath": "/models"})],
    "scratch_is_limited": [lambda d: pod(d, "router")["volumes"][0]["emptyDir"].clear()],
    "workers_share_a_folder_for_the_ring": [
        lambda d: container(d, "drafter")["volumeMounts"].pop(0),
        lambda d: set_argument(container(d, "verifier"), "ring-dir", "/run/tandem")],
    "references_exist": [
        lambda d: pod(d, "router").update(serviceAccountName="other"),
        lambda d: pod(d, "router")["volumes"].append({"name": "tls", "secret": {"secretName": "nobodys"}})],
    "claims_are_used": [
        lambda d: pod(d, "workers").update(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "tandem-gpu"}])],
    "a_device_plugins_gpu_is_in_one_container": [lambda d: container(d, "verifier")["resources"]["limits"].update({"nvidia.com/gpu": 1})],
    "selectors_select": [
        lambda d: find(d, "Service", "router")["spec"]["selector"].update({"app.kubernetes.io/component": "workers"}),
        lambda d: find(d, "PodDisruptionBudget", "workers")["spec"]["selector"]["matchLabels"].pop("app.kubernetes.io/component"),
        lambda d: find(d, "Deployment", "router")["spec"]["selector"]["matchLabels"].update(a="b"),
        lambda d: pod(d, "router")["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"].update(a="b")],
    "services_find_ports": [lambda d: find(d, "Service", "workers")["spec"]["ports"][0].update(targetPort="grpc")],
    "routers_find_workers": [
        lambda d: set_argument(container(d, "router"), "verifier", "dns:tandem-worker:50061"),
        lambda d: set_argument(container(d, "router"), "drafter", "dns:tandem-workers:50063"),
        lambda d: find(d, "Service", "workers")["spec"].pop("publishNotReadyAddresses")],
    "processes_listen_where_ports_are": [lambda d: set_argument(container(d, "drafter"), "admin", "0.0.0.0:9465")],
    "network_policies_open_ports_that_exist": [
        lambda d: find(d, "NetworkPolicy", "router")["spec"]["ingress"][0]["ports"][0].update(port=50052),
        lambda d: find(d, "NetworkPolicy", "workers")["spec"]["ingress"][0].pop("from"),
        lambda d: find(d, "NetworkPolicy", "workers")["spec"]["ingress"].pop(),
        lambda d: find(d, "NetworkPolicy", "router")["spec"]["egress"].pop()],
    "monitors_reach_every_admin_port": [
        lambda d: find(d, "PodMonitor")["spec"]["podMetricsEndpoints"].pop(),
        lambda d: find(d, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["relabelings"].pop()],
    "scaling_is_by_load": [
        lambda d: find(d, "ScaledObject")["spec"]["triggers"][0]["metadata"].update(query="tandem:acceptance_rate:5m"),
        lambda d: find(d, "Deployment", "workers")["spec"].update(replicas=1)],
    "plaintext_is_said": [lambda d: set_argument(container(d, "verifier"), "insecure", "false")],
}
# Violations in a container that runs both workers.
BREAKS_OF_A_PAIR = {
    "containers_are_probed": [
        lambda d: container(d, "verifier")["livenessProbe"].update(exec={"command": ["true"]}),
        lambda d: container(d, "verifier")["startupProbe"].update(timeoutSeconds=1),
        lambda d: container(d, "verifier").update(
            livenessProbe={"httpGet": {"path": "/healthz", "port": "verifier-admin", "scheme": "HTTP"}, "timeoutSeconds": 5}),
        lambda d: container(d, "verifier")["readinessProbe"]["httpGet"].update(path="/healthz")],
}
# Violations of a gateway.
BREAKS_OF_A_GATEWAY = {
    "containers_are_probed": [
        lambda d: container(d, "gateway")["readinessProbe"]["httpGet"].update(path="/readyz"),
        lambda d: container(d, "gateway")["livenessProbe"]["httpGet"].update(path="/health"),
        lambda d: container(d, "gateway")["readinessProbe"]["httpGet"].update(scheme="HTTP")],
    "streams_are_waited_for": [lambda d: pod(d, "gateway").update(terminationGracePeriodSeconds=300)],
    "gateways_find_routers": [
        lambda d: set_argument(container(d, "gateway"), "connect", "tandem-routers:50051"),
        lambda d: set_argument(container(d, "gateway"), "connect", "tandem-router:50052"),
        lambda d: next(one for one in pod(d, "gateway")["volumes"] if one["name"] == "router-ca")["secret"].pop("items")],
    "processes_listen_where_ports_are": [lambda d: set_argument(container(d, "gateway"), "listen", "0.0.0.0:8001")],
    "network_policies_open_ports_that_exist": [
        lambda d: find(d, "NetworkPolicy", "router")["spec"]["ingress"][0]["from"].pop(),
        lambda d: find(d, "NetworkPolicy", "gateway")["spec"]["ingress"].pop(),
        lambda d: find(d, "NetworkPolicy", "gateway")["spec"]["egress"].append({"ports": [{"port": 443, "protocol": "TCP"}]})],
    "monitors_reach_every_admin_port": [lambda d: find(d, "PodMonitor")["spec"]["podMetricsEndpoints"].pop()],
    "scaling_is_by_load": [lambda d: find(d, "Deployment", "gateway")["spec"].update(replicas=1)],
    "plaintext_is_said": [
        lambda d: set_argument(container(d, "gateway"), "insecure", "true"),
        lambda d: container(d, "gateway")["args"].remove("--router-ca=/etc/tandem/router-ca/ca.crt")],
}
EXAMPLES = {"monitored": BREAKS, "gpu": BREAKS_OF_A_PAIR, "http": BREAKS_OF_A_GATEWAY}


def fresh(example):
    return chart.documents(chart.render(chart.CHART / "examples" / f"values-{example}.yaml"))


def test_every_rule_has_a_violation_here():
    assert {name for breaks in EXAMPLES.values() for name in breaks} == {one.__name__ for one in rules.RULES}


@pytest.mark.parametrize("example, name, change", [
    pytest.param(example, name, change, id=f"{example}-{name}-{number}")
    for example, breaks in EXAMPLES.items() for name, changes in breaks.items() for number, change in enumerate(changes)])
def test_a_violation_is_noticed(example, name, change):
    documents = fresh(example)
    assert rules.broken(documents) == []
    change(documents)
    noticed = [what for what in rules.broken(documents) if what.startswith(f"{name}: ")]
    assert noticed, rules.broken(documents)
