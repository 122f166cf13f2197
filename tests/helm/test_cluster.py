"""Tests the chart on a control plane. The API server accepts every object, and Helm installs, upgrades, rolls back and uninstalls
releases. kwok reports pods as ready; no container runs."""

import collections
import json
import re
import time

import pytest
import yaml

import chart
import control_plane
import rules
from control_plane import output

pytestmark = pytest.mark.skipif(not control_plane.is_built(), reason="no control plane; tools/fetch_cluster.sh builds one")

# The namespace of objects that are only tried, with the ServiceAccounts that the tests make there.
TRIAL = "trial"
CPU = chart.CHART / "examples" / "values-cpu.yaml"
INSTANCE = f"app.kubernetes.io/instance={chart.RELEASE}"
HOST_PATH = re.compile(r'Warning: would violate PodSecurity "restricted:latest": restricted volume types \([^()]*"hostPath"\)')


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = control_plane.ControlPlane(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


# ---------------------------------------------------------------- every object


CASES = [None, *chart.EXAMPLES, chart.EVERYTHING]


def is_custom(document):
    """Returns true if the kind of the object does not belong to Kubernetes itself."""
    group = document["apiVersion"].rpartition("/")[0]
    return "." in group and not group.endswith(".k8s.io")


@pytest.fixture(scope="module")
def trial(cluster):
    """Makes the objects that must exist before others are tried."""
    labels = {"pod-security.kubernetes.io/warn": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TRIAL, "labels": labels}}
    documents = [document for example in CASES for document in chart.documents(chart.render(example, cluster.version()))]
    output(cluster.kubectl("apply", "--filename=-", input=yaml.safe_dump(namespace)))
    # These are created, because they are too large for `apply`, which keeps a copy in an annotation. One has labels that are templates of
    # Helm.
    definitions = [yaml.safe_load(path.read_text()) for path in control_plane.DEFINITIONS.glob("*.yaml")]
    for definition in definitions:
        definition["metadata"] = {"name": rules.name_of(definition)}
    output(cluster.kubectl("create", "--filename=-", input=yaml.safe_dump_all(definitions)))
    custom = [document for document in documents if is_custom(document)]
    for group, kind in sorted({(document["apiVersion"].partition("/")[0], document["kind"]) for document in custom}):
        cluster.wait_for("get", f"{kind}.{group}", "--namespace", TRIAL)
    # Pods, such as the pod of `helm test`, are refused without their ServiceAccount, and a dry run leaves none.
    accounts = {rules.name_of(account): account for account in rules.of_kind(documents, "ServiceAccount")}
    output(cluster.kubectl("apply", "--namespace", TRIAL, "--filename=-", input=yaml.safe_dump_all(accounts.values())))


@pytest.mark.parametrize("example", CASES, ids=lambda example: example.stem if example else "defaults")
def test_the_cluster_takes_every_object(cluster, trial, example):
    text = chart.render(example, cluster.version())
    done = cluster.kubectl("apply", "--dry-run=server", "--namespace", TRIAL, "--filename=-", input=text)
    taken = output(done).splitlines()
    assert len(taken) == len(chart.documents(text)) and all(line.endswith("(server dry run)") for line in taken), taken
    # docs/kubernetes.md: the Pod Security Standard `restricted` refuses only folders of the nodes.
    warnings = done.stderr.splitlines()
    assert all(HOST_PATH.fullmatch(warning) for warning in warnings), warnings
    assert bool(warnings) == ("hostPath:" in text)


@pytest.mark.parametrize("kind, change, words", [
    ("Deployment", lambda spec: spec["template"]["spec"].update(terminationGracePeriod=5), "terminationGracePeriod"),
    ("Deployment", lambda spec: spec["selector"]["matchLabels"].update(a="b"), "selector"),
    ("PodMonitor", lambda spec: spec.update(podMetricsEndpoint=[]), "podMetricsEndpoint"),
    ("PrometheusRule", lambda spec: spec["groups"][0]["rules"][0].update({"for": "soon"}), "groups[0].rules[0].for"),
    ("ScaledObject", lambda spec: spec.update(maxReplicaCount="many"), "maxReplicaCount"),
    ("Certificate", lambda spec: spec.pop("issuerRef"), "issuerRef"),
])
def test_the_cluster_refuses_wrong_objects(cluster, trial, kind, change, words):
    rendered = (chart.documents(chart.render(example, cluster.version())) for example in CASES)
    wrong = next(document for documents in rendered for document in rules.of_kind(documents, kind))
    change(wrong["spec"])
    done = cluster.kubectl("apply", "--dry-run=server", "--namespace", TRIAL, "--filename=-", input=yaml.safe_dump(wrong))
    assert done.returncode != 0 and words in done.stderr, done.stderr


# ---------------------------------------------------------------- renders


@pytest.mark.parametrize("example", CASES, ids=lambda example: example.stem if example else "defaults")
def test_the_renderer_does_what_helm_does(cluster, example):
    values = ("--values", example) if example else ()
    command = ("template", chart.RELEASE, chart.CHART, "--namespace", chart.NAMESPACE, "--kube-version", chart.NEWEST)
    assert chart.render(example) == output(cluster.helm(*command, *values))


def test_the_renderer_knows_the_apis_that_helm_knows(cluster, tmp_path):
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: apis, version: 0.1.0}")
    (tmp_path / "templates" / "apis.yaml").write_text("apis: {{ .Capabilities.APIVersions | sortAlpha | toJson }}")
    assert chart.run_helm("template", "a", tmp_path).stdout == output(cluster.helm("template", "a", tmp_path))


# ---------------------------------------------------------------- releases


def helm(cluster, command, *arguments):
    return output(cluster.helm(command, *arguments, "--namespace", chart.NAMESPACE))


def objects(cluster, kinds):
    """Returns the pods of the release that are not being deleted."""
    found = output(cluster.kubectl("get", kinds, "--namespace", chart.NAMESPACE, "--selector", INSTANCE, "--output=json"))
    return [one for one in json.loads(found)["items"] if "deletionTimestamp" not in one["metadata"]]


def deployments(cluster):
    return {rules.name_of(one): one["spec"] for one in objects(cluster, "deployments")}


def ready_pods(cluster):
    """Returns the number of pods of each component, after replaced pods are gone."""
    for name in deployments(cluster):
        output(cluster.kubectl("rollout", "status", f"deployment/{name}", "--namespace", chart.NAMESPACE, "--timeout=120s"))
    return collections.Counter(
        pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in objects(cluster, "pods")
        if any(condition["type"] == "Ready" and condition["status"] == "True" for condition in pod["status"].get("conditions", [])))


def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(cluster):
    wait = ("--wait", "--timeout=2m")
    helm(cluster, "install", chart.RELEASE, chart.CHART, "--create-namespace", "--values", CPU, *wait)
    installed, values = deployments(cluster), helm(cluster, "get", "values", chart.RELEASE)
    assert ready_pods(cluster) == {"router": 2, "workers": 2}

    # The first change concerns one Deployment, and the second concerns the pods of both.
    helm(cluster, "upgrade", chart.RELEASE, chart.CHART, "--values", CPU, "--set", "workers.replicas=3,longestStreamSeconds=60", *wait)
    assert ready_pods(cluster) == {"router": 2, "workers": 3}
    upgraded = deployments(cluster)
    assert all(upgraded[name]["template"] != installed[name]["template"] for name in installed)
    history = json.loads(helm(cluster, "history", chart.RELEASE, "--output=json"))
    assert [(one["revision"], one["status"]) for one in history] == [(1, "superseded"), (2, "deployed")]

    helm(cluster, "rollback", chart.RELEASE, "1", *wait)
    assert ready_pods(cluster) == {"router": 2, "workers": 2}
    assert deployments(cluster) == installed
    assert helm(cluster, "get", "values", chart.RELEASE) == values

    helm(cluster, "uninstall", chart.RELEASE, *wait)
    kinds = ",".join(output(cluster.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name")).split())
    end = time.monotonic() + 60  # objects that belonged to deleted ones, such as pods, disappear a little later
    while (left := [f"{one['kind']} {rules.name_of(one)}" for one in objects(cluster, kinds)]) and time.monotonic() < end:
        time.sleep(1)
    assert left == []
    assert helm(cluster, "list", "--all", "--short").split() == []


@pytest.mark.parametrize("setting, words", [
    ("router.replicas=two", "/router/replicas"),
    ("insecure=false", "insecure: false needs Secrets for TLS"),
])
def test_a_refused_release_leaves_nothing_behind(cluster, setting, words):
    done = cluster.helm("install", "refused", chart.CHART, "--namespace", chart.NAMESPACE, "--create-namespace", "--set", setting)
    assert done.returncode != 0 and words in done.stderr, done.stderr
    assert "refused" not in output(cluster.helm("list", "--all", "--all-namespaces", "--short"))
