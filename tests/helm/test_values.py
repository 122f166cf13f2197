"""Tests values that must be refused, and that values.yaml, its schema and the README agree."""

import json
import re
import subprocess
import sys

import pytest
import yaml

import chart

SCHEMA = json.loads((chart.CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((chart.CHART / "values.yaml").read_text())


@pytest.mark.parametrize("setting, words", [
    # Keys that do not exist, at every depth.
    ("replicas=3", ["replicas", "not allowed"]),
    ("router.replica=3", ["/router", "replica", "not allowed"]),
    ("gpu.mps.enable=true", ["/gpu/mps", "enable", "not allowed"]),
    ("models.target.folder=a", ["/models/target", "folder", "not allowed"]),
    ("workers.autoscaling.keda.address=a", ["/workers/autoscaling", "keda", "not allowed"]),
    ("verifier.resources.limit.cpu=1", ["/verifier/resources", "limit", "not allowed"]),
    ("router.affinity.podAfinity.a=1", ["/router/affinity", "podAfinity", "not allowed"]),
    ("networkPolicy.clients[0].nameSpaceSelector.a=b", ["/networkPolicy/clients/0", "nameSpaceSelector", "not allowed"]),
    # Wrong types and ranges.
    ("gateway.service.headless=true", ["/gateway/service", "headless", "not allowed"]),
    ("router.replicas=two", ["/router/replicas", "string", "integer"]),
    ("insecure=maybe", ["/insecure", "string", "boolean"]),
    ("router.service.port=70000", ["/router/service/port", "65,535"]),
    ("gpu.sharing=mps", ["/gpu/sharing", "none", "singleContainer", "dra"]),
    ("models.source=s3", ["/models/source", "embedded", "pvc", "image", "hostPath", "initContainer"]),
    ("models.target.path=/absolute", ["/models/target/path", "pattern"]),
    ("models.target.path=a/../b", ["/models/target/path"]),
    ("workers.autoscaling.kvUse=80", ["/workers/autoscaling/kvUse", "1"]),
    ("verifier.options.--threads=4", ["/verifier/options", "--threads"]),
    ("verifier.options.threads[0]=4", ["/verifier/options/threads", "array"]),
    ("commonLabels.app\\.kubernetes\\.io/name=x", ["commonLabels: app.kubernetes.io/name is a label that the chart sets itself"]),
    ("tls.certManager.duration=90d", ["/tls/certManager/duration", "pattern"]),
    # Combinations.
    ("models.source=pvc", ["models.pvc.claimName is empty, and models.source: pvc needs it"]),
    ("models.source=image", ["models.image.reference is empty, and models.source: image needs it"]),
    ("models.source=hostPath", ["models.hostPath.path is empty, and models.source: hostPath needs it"]),
    ("models.source=initContainer", ["models.initContainer.image is empty, and models.source: initContainer needs it"]),
    ("gpu.mps.enabled=true", ["gpu.mps.enabled: there is no GPU with gpu.sharing: none"]),
    ("tls.certManager.enabled=true", ["tls.certManager.issuerRef.name is empty"]),
    ("tls.router.mutual=true", ["tls.router.mutual needs TLS"]),
    ("gateway.enabled=true,tls.gateway.mutual=true", ["tls.gateway.mutual needs TLS"]),
    ("gateway.enabled=true,tls.router.secretName=a,tls.router.mutual=true", ["tls.gateway.clientSecretName is empty"]),
    ("gateway.enabled=true,insecure=false,tls.router.secretName=a,tls.workers.secretName=b,tokens.secretName=c",
     ["insecure: false needs a Secret for the gateways' TLS too"]),
    ("router.service.headless=true,router.service.type=NodePort", ["router.service.headless: a Service of type NodePort has a cluster IP"]),
    ("metrics.podMonitor.enabled=true,tokens.secretName=a", ["metrics.podMonitor.tokenSecretName is empty"]),
    ("insecure=false", ["insecure: false needs Secrets for TLS", "and tokens (tokens.secretName)"]),
    ("insecure=false,tls.router.secretName=a,tls.workers.secretName=b", ["insecure: false needs Secrets for TLS"]),
    ("workers.rollingUpdate.maxSurge=0", ["workers.rollingUpdate: maxSurge and maxUnavailable are both 0"]),
    ("workers.rollingUpdate.maxSurge=0%", ["workers.rollingUpdate: maxSurge and maxUnavailable are both 0"]),
    ("router.autoscaling.enabled=true,router.autoscaling.maxReplicas=1",
     ["router.autoscaling: minReplicas (2) is more than maxReplicas (1)"]),
    ("gateway.enabled=true,gateway.autoscaling.enabled=true,gateway.autoscaling.maxReplicas=1",
     ["gateway.autoscaling: minReplicas (2) is more than maxReplicas (1)"]),
    ("workers.autoscaling.kind=hpa,workers.autoscaling.minReplicas=9",
     ["workers.autoscaling: minReplicas (9) is more than maxReplicas (4)"]),
    # Options that the chart's other objects rely on.
    ("router.options.drain-seconds=9", ["router.options.drain-seconds:", "use longestStreamSeconds"]),
    ("router.options.listen=a", ["router.options.listen:", "use listenHost"]),
    ("router.options.admin=none", ["router.options.admin:", "use listenHost"]),
    ("router.options.verifier=a", ["router.options.verifier:", "workers.replicas"]),
    ("router.options.drafter=none", ["router.options.drafter:", "use models.draft.enabled"]),
    ("router.options.target=a", ["router.options.target:", "models.target.path"]),
    ("router.options.tls-client-ca=a", ["router.options.tls-client-ca:", "use tls.router or tls.certManager"]),
    ("router.options.worker-name=a", ["router.options.worker-name:", "use tls.workers or tls.certManager"]),
    ("router.options.token-file=a", ["router.options.token-file:", "use tokens.secretName"]),
    ("gateway.options.listen=a", ["gateway.options.listen:", "use listenHost"]),
    ("gateway.options.connect=a", ["gateway.options.connect:", "the routers' Service"]),
    ("gateway.options.tls-key=a", ["gateway.options.tls-key:", "use tls.gateway or tls.certManager"]),
    ("gateway.options.router-ca=a", ["gateway.options.router-ca:", "use tls.router, tls.gateway.clientSecretName or tokens.secretName"]),
    ("gateway.options.token-file=a", ["gateway.options.token-file:", "use tokens.secretName"]),
    ("verifier.options.listen=a", ["verifier.options.listen:", "use listenHost"]),
    ("drafter.options.admin=none", ["drafter.options.admin:", "use listenHost"]),
    ("verifier.options.ring-dir=a", ["verifier.options.ring-dir:", "/run/tandem"]),
    ("verifier.options.model=a", ["verifier.options.model:", "models.target.path"]),
    ("drafter.options.model=a", ["drafter.options.model:", "models.draft.path"]),
    ("drafter.options.tls-key=a", ["drafter.options.tls-key:", "use tls.workers or tls.certManager"]),
    ("verifier.options.token-file=a", ["verifier.options.token-file:", "use tokens.secretName"]),
    ("drafter.options.client-name=a", ["drafter.options.client-name:", "use tls.workers or tls.certManager"]),
])
def test_a_wrong_value_is_refused_in_clear_words(setting, words):
    done = chart.template("--set", setting)
    assert done.returncode != 0, f"{setting} was taken"
    for word in words:
        assert word in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) <= 8, done.stderr


@pytest.mark.parametrize("setting", [
    "global.anything=1",  # set by a chart that includes this one
    "enabled=true",  # set by its `condition: tandem.enabled`
    "insecure=false,tls.router.secretName=a,tls.workers.secretName=b,tokens.secretName=c",
    "models.source=pvc,models.pvc.claimName=a,models.target.path=",
    "router.service.headless=true",
    "router.podDisruptionBudget.maxUnavailable=50%",
    "workers.rollingUpdate.maxSurge=25%",
    "router.autoscaling.maxReplicas=1",  # autoscaling is not enabled
    "gateway.autoscaling.enabled=true,gateway.autoscaling.maxReplicas=1,tls.gateway.mutual=true",  # there are no gateways
    "gateway.enabled=true,gateway.options.max-body-bytes=1048576",
    # These only begin like refused options.
    "router.options.verifier-timeout=9,router.options.drafter-required=true,router.options.model-name=a,verifier.options.model-name=a",
    "verifier.options.kv-cache-bytes=8G,verifier.options.log-prompts=true",
])
def test_a_right_value_is_accepted(setting):
    done = chart.template("--set", setting)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kubernetes, apis", [("1.29", ()), ("1.33", ("resource.k8s.io/v1beta1",))])
def test_dra_is_refused_if_the_cluster_lacks_its_api(kubernetes, apis):
    done = chart.template("--set", "gpu.sharing=dra", kubernetes=kubernetes, apis=apis)
    assert done.returncode != 0
    assert "gpu.sharing: dra needs the API resource.k8s.io/v1" in done.stderr and "use singleContainer" in done.stderr


def test_image_volumes_are_refused_if_the_cluster_lacks_them():
    setting = ("--set", "models.source=image,models.image.reference=a:1")
    done = chart.template(*setting, kubernetes="1.29")
    assert done.returncode != 0
    assert "models.source: image needs Kubernetes 1.33" in done.stderr
    assert chart.template(*setting, kubernetes="1.33").returncode == 0


def test_an_old_kubernetes_is_refused():
    done = chart.template(kubernetes="1.28")
    assert done.returncode != 0 and "kubeVersion: >=1.29" in done.stderr, done.stderr


def resolve(schema):
    while "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    return schema


def differences(schema, values, path=""):
    """Yields places where the keys of values.yaml differ from those of the schema. Maps that users fill are left out."""
    schema = resolve(schema)
    properties = schema.get("properties")
    if properties is None or not isinstance(values, dict):
        return
    known = set(properties) - ({"global", "enabled"} if not path else set())
    optional = {"group"} if path.lower().endswith("issuerref") else set()
    if path.rpartition(".")[2] in ("resources", "affinity"):
        return
    if known - optional != set(values):
        yield f"{path}: {sorted(known ^ set(values))}"
    for key in known & set(values):
        yield from differences(properties[key], values[key], f"{path}.{key}")


def test_the_schema_has_the_keys_of_values_yaml_and_no_others():
    assert list(differences(SCHEMA, VALUES)) == []


def lists_and_maps(values, path=()):
    """Yields the paths of everything that users fill: lists, maps that are empty by default, resources."""
    for key, value in values.items():
        if isinstance(value, list) or value == {} or key == "resources":
            yield *path, key
        elif isinstance(value, dict):
            yield from lists_and_maps(value, (*path, key))


def test_everything_has_every_list_and_map():
    missing = []
    for path in lists_and_maps(VALUES):
        value = yaml.safe_load(chart.EVERYTHING.read_text())
        for key in path:
            value = value.get(key) or {}
        if not value:
            missing.append(".".join(path))
    assert missing == []


def objects(schema, path="$"):
    """Yields (path, schema) for every schema of an object with named keys."""
    if isinstance(schema, dict):
        if "properties" in schema and schema.get("type") == "object":
            yield path, schema
        for key, inner in schema.items():
            yield from objects(inner, f"{path}.{key}")
    elif isinstance(schema, list):
        for inner in schema:
            yield from objects(inner, path)


def test_the_schema_refuses_unknown_keys_everywhere():
    lenient = [path for path, schema in objects(SCHEMA) if schema.get("additionalProperties") is not False]
    # In a volume, a mount or a reference to a Secret, Kubernetes checks the other keys.
    assert lenient == ["$.definitions.named.items"]


def test_every_value_is_used():
    templates = "".join(path.read_text() for path in (chart.CHART / "templates").rglob("*.*"))
    leaves = {line.split(":")[0].strip() for line in (chart.CHART / "values.yaml").read_text().splitlines()
              if re.match(r" *[A-Za-z]\w*:", line)}
    # These are used by a name in a variable.
    unused = {leaf for leaf in leaves if not re.search(rf"\b{leaf}\b", templates)}
    assert unused <= {"target", "draft", "claimName", "reference", "verifier", "drafter"}, unused


def test_the_readme_s_table_agrees_with_values_yaml():
    done = subprocess.run([sys.executable, chart.SOURCE / "helm" / "make_readme.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
