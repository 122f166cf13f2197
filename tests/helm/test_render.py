"""Tests every example, and everything.yaml, with several versions of Kubernetes."""

import difflib
import json
import pathlib
import re

import kubernetes_validate
import pytest
import yaml

import chart
import rules

# (example, version, more arguments)
CASES = [pytest.param(example, kubernetes, (), id=f"{example.stem}-{kubernetes}")
         for example in chart.EXAMPLES for kubernetes in chart.KUBERNETES if chart.supports(example, kubernetes)]
CASES += [pytest.param(None, kubernetes, (), id=f"defaults-{kubernetes}") for kubernetes in chart.KUBERNETES]
CASES += [pytest.param(chart.EVERYTHING, kubernetes, ("--set", f"gpu.sharing={sharing}"), id=f"everything-{sharing}-{kubernetes}")
          for kubernetes in chart.KUBERNETES for sharing in ("none", "singleContainer", "dra")
          if sharing != "dra" or chart.has_dra(kubernetes)]
EXAMPLES = [pytest.param(example, id=example.stem) for example in chart.EXAMPLES]
LINTED = [pytest.param(path, kubernetes, id=f"{path.stem if path else 'defaults'}-{kubernetes}")
          for path in (None, *chart.EXAMPLES, chart.EVERYTHING) for kubernetes in chart.KUBERNETES
          if path is None or chart.supports(path, kubernetes)]
# Kinds of projects other than Kubernetes, whose schemas are not here.
CUSTOM = ("PodMonitor", "PrometheusRule", "ScaledObject", "Certificate")
COPIES = {"alerts.yml": "deploy/prometheus/alerts.yml", "tandem.json": "deploy/grafana/tandem.json"}


def validate(document, kubernetes):
    """Raises an error if a cluster of that version would refuse the document, also for an unknown field."""
    kubernetes_validate.validate(document, kubernetes, strict=True)


@pytest.mark.parametrize("path, kubernetes", LINTED)
def test_helm_lint_finds_nothing(path, kubernetes):
    values = ("--values", path) if path else ()
    done = chart.run_helm("lint", "--strict", "--quiet", "--kube-version", kubernetes, *values, chart.CHART)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout and "ERROR" not in done.stdout


@pytest.mark.parametrize("example, kubernetes, arguments", CASES)
def test_the_rules_hold(example, kubernetes, arguments):
    assert rules.broken(chart.documents(chart.render(example, kubernetes, *arguments))) == []


@pytest.mark.parametrize("example, kubernetes, arguments", CASES)
def test_the_cluster_knows_every_field(example, kubernetes, arguments):
    documents = chart.documents(chart.render(example, kubernetes, *arguments))
    own = [document for document in documents if document["kind"] not in CUSTOM]
    assert len(own) >= 8
    for document in own:
        validate(document, kubernetes)


@pytest.mark.parametrize("kind, change", [
    ("Deployment", lambda spec: spec["template"]["spec"].update(terminationGracePeriod=5)),
    ("Deployment", lambda spec: spec["template"]["spec"]["containers"][0]["startupProbe"]["httpGet"].update(schema="HTTPS")),
    ("Deployment", lambda spec: spec.update(replicas="two")),
    ("Service", lambda spec: spec.pop("ports") and spec.update(ports=[{"name": "grpc"}])),
    ("NetworkPolicy", lambda spec: spec.update(ingres=spec.pop("ingress"))),
])
@pytest.mark.parametrize("kubernetes", chart.KUBERNETES)
def test_the_schemas_refuse_wrong_objects(kind, change, kubernetes):
    document = rules.of_kind(chart.documents(chart.render(None, kubernetes)), kind)[0]
    validate(document, kubernetes)
    change(document["spec"])
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(document, kubernetes)


def without_copies(text):
    """Shortens the copies of other files, which have their own tests and would be most of the text."""
    text = re.sub(r"^  tandem\.json: \|\n(    .*\n|\n)*", "  tandem.json: … deploy/grafana/tandem.json\n", text, flags=re.MULTILINE)
    return re.sub(r"^spec:\n  # docs/metrics.md says(.*\n)*?(?=---)", "spec: … deploy/prometheus/alerts.yml\n", text, flags=re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_golden_render(example, request):
    golden = chart.GOLDEN / f"{example.stem.removeprefix('values-')}.yaml"
    rendered = without_copies(chart.render(example))
    if request.config.getoption("--update-golden"):
        golden.write_text(rendered)
    expected = golden.read_text() if golden.exists() else ""
    difference = "".join(difflib.unified_diff(expected.splitlines(True), rendered.splitlines(True), str(golden), "rendered"))
    assert not difference, f"{difference}\nIf that was meant: pytest tests/helm --update-golden"


def test_every_golden_render_has_an_example():
    assert {golden.stem for golden in chart.GOLDEN.iterdir()} == {example.stem.removeprefix("values-") for example in chart.EXAMPLES}


@pytest.mark.parametrize("copy, original", COPIES.items())
def test_copies_equal_their_originals(copy, original):
    assert (chart.CHART / "files" / copy).read_text() == (chart.SOURCE / original).read_text(), f"cp {original} helm/tandem/files/"


def test_alerts_and_dashboard_arrive_unchanged():
    documents = chart.documents(chart.render(chart.CHART / "examples" / "values-monitored.yaml"))
    alerts, = rules.of_kind(documents, "PrometheusRule")
    assert alerts["spec"] == yaml.safe_load((chart.SOURCE / COPIES["alerts.yml"]).read_text())
    dashboard, = rules.of_kind(documents, "ConfigMap")
    assert json.loads(dashboard["data"]["tandem.json"]) == json.loads((chart.SOURCE / COPIES["tandem.json"]).read_text())


def test_only_monitored_clusters_need_custom_resources():
    assert not rules.of_kind(chart.documents(chart.render()), *CUSTOM)


def test_both_models_share_a_gpu_by_one_container_or_by_one_claim():
    def workers(example):
        documents = chart.documents(chart.render(chart.CHART / "examples" / example))
        spec, = [spec for _, labels, spec in rules.pods(documents) if labels["app.kubernetes.io/component"] == "workers"]
        return spec

    plugin = workers("values-gpu.yaml")
    container, = plugin["containers"]
    assert container["command"] == ["tandem-workers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert environment["TANDEM_VERIFIER_BACKEND"] == environment["TANDEM_DRAFT_BACKEND"] == "cuda"
    assert environment["TANDEM_VERIFIER_GPU_MEMORY_BYTES"] == "56G"
    for probe in ("startupProbe", "livenessProbe"):
        program, = container[probe]["exec"]["command"]
        assert (chart.SOURCE / "deploy" / "container" / program).exists()

    claimed = workers("values-dra.yaml")
    assert [one["name"] for one in claimed["containers"]] == ["verifier", "drafter"]
    assert claimed["shareProcessNamespace"] is True
    assert all(one["resources"]["claims"] == [{"name": "gpu"}] for one in claimed["containers"])

    shared = workers("values-cpu.yaml")
    assert [one["name"] for one in shared["containers"]] == ["verifier", "drafter"]
    assert "shareProcessNamespace" not in shared


def test_mps_is_a_choice():
    def command(*arguments):
        text = chart.render(chart.CHART / "examples" / "values-gpu.yaml", chart.NEWEST, *arguments)
        spec, = [spec for name, _, spec in rules.pods(chart.documents(text)) if name.endswith("-workers")]
        return " ".join(spec["containers"][0]["command"])

    assert "mps" not in command()
    assert "nvidia-cuda-mps-control -d && exec tandem-workers" in command("--set", "gpu.mps.enabled=true")

    def claim(*arguments):
        documents = chart.documents(chart.render(chart.CHART / "examples" / "values-dra.yaml", chart.NEWEST, *arguments))
        return rules.of_kind(documents, "ResourceClaimTemplate")[0]["spec"]["spec"]["devices"]

    assert "config" not in claim()
    config, = claim("--set", "gpu.mps.enabled=true")["config"]
    assert config["opaque"]["parameters"]["sharing"] == {"strategy": "MPS"}


def test_a_user_s_option_overrides_the_chart_s():
    text = chart.render(None, chart.NEWEST, "--set", "verifier.options.threads=3", "--set", "verifier.options.model-name=mine",
                        "--set", "router.options.insecure=false", "--set", "router.options.max-prompt-bytes=8000000")
    documents = chart.documents(text)
    found = {place: one for place, one, _, _ in rules.containers(documents)}
    verifier, router = found["tandem-workers/verifier"], found["tandem-router/router"]
    assert rules.option(verifier, "model-name") == "mine" and rules.option(verifier, "threads") == "3"
    assert "TANDEM_VERIFIER_THREADS" not in [entry["name"] for entry in verifier.get("env", [])]
    assert rules.option(router, "insecure") == "false"
    assert rules.option(router, "max-prompt-bytes") == "8000000"


def test_long_names_are_cut():
    done = chart.template(release="r" * 53, apis=chart.apis_of(chart.NEWEST))
    assert done.returncode == 0, done.stderr
    assert rules.broken(chart.documents(done.stdout)) == []


@pytest.mark.parametrize("release, arguments", [
    ("no", ()), ("12", ()), ("tandem", ("--set-string", "fullnameOverride=no,nameOverride=12"))])
@pytest.mark.parametrize("values", [chart.EVERYTHING, chart.CHART / "examples" / "values-fetched.yaml"], ids=lambda path: path.stem)
def test_names_stay_text(values, release, arguments):
    """`no` is false in YAML, and 12 is a number. A cluster accepts neither as a label or a name."""
    done = chart.template("--values", values, "--set", "serviceAccount.name=", *arguments, release=release)
    assert done.returncode == 0, done.stderr
    documents = chart.documents(done.stdout)
    assert rules.broken(documents) == []
    for document in documents:
        if document["kind"] not in CUSTOM:
            validate(document, chart.NEWEST)


def test_certificates_are_made_for_secrets_that_are_not_the_user_s_own():
    def certificates(*settings):
        text = chart.render(chart.CHART / "examples" / "values-secure.yaml", chart.NEWEST, "--set", ",".join(settings))
        found = rules.of_kind(chart.documents(text), "Certificate")
        return {rules.name_of(one): one["spec"] for one in found}

    both = certificates("tls.certManager.workersIssuerRef.name=")
    assert "localhost" in both["tandem-router-tls"]["dnsNames"] and "localhost" not in both["tandem-workers-tls"]["dnsNames"]
    assert {spec["issuerRef"]["name"] for spec in both.values()} == {"team-ca"}
    apart = certificates("tls.certManager.duration=48h")
    assert apart["tandem-workers-tls"]["issuerRef"] == {"name": "tandem-workers-ca", "kind": "Issuer"}
    assert apart["tandem-router-tls"]["issuerRef"] == {"name": "team-ca", "kind": "ClusterIssuer"}
    assert set(certificates("tls.router.secretName=own")) == {"tandem-workers-tls"}
    assert set(certificates("tls.workers.secretName=own")) == {"tandem-router-tls"}
    assert set(certificates("tls.router.secretName=own", "tls.workers.secretName=own")) == set()
    # An issuer that signs nothing is not needed either.
    assert set(certificates("tls.router.secretName=own", "tls.certManager.issuerRef.name=")) == {"tandem-workers-tls"}


def test_gateways_are_there_only_if_asked_for():
    def of_gateways(*arguments):
        documents = chart.documents(chart.render(None, chart.NEWEST, *arguments))
        return {one["kind"] for one in documents if one["metadata"]["labels"]["app.kubernetes.io/component"] == "gateway"}

    assert of_gateways() == set()
    enabled = ("--set", "gateway.enabled=true")
    assert of_gateways(*enabled) == {"Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"}
    assert of_gateways(*enabled, "--set", "gateway.autoscaling.enabled=true") - of_gateways(*enabled) == {"HorizontalPodAutoscaler"}


def test_a_gateway_shows_its_tokens_only_to_a_router_with_tls_unless_that_is_said():
    def options(*settings):
        text = chart.render(None, chart.NEWEST, "--set", ",".join(("gateway.enabled=true", *settings)))
        found = {place: one for place, one, _, _ in rules.containers(chart.documents(text))}["tandem-gateway/gateway"]
        return {flag: rules.option(found, flag) for flag in ("token-file", "router-token-file", "router-ca", "insecure")}

    assert options() == {"token-file": None, "router-token-file": None, "router-ca": None, "insecure": "true"}
    tokens = "/etc/tandem/tokens/tokens"
    assert options("tokens.secretName=t") == {
        "token-file": tokens, "router-token-file": tokens, "router-ca": None, "insecure": "true"}
    assert options("tokens.secretName=t", "tls.router.secretName=r") == {
        "token-file": tokens, "router-token-file": tokens, "router-ca": "/etc/tandem/router-ca/ca.crt", "insecure": None}


def test_workers_take_commands_only_from_their_routers():
    def name_asked_for(example):
        documents = chart.documents(chart.render(chart.CHART / "examples" / example))
        return {rules.option(one, "client-name") for place, one, _, _ in rules.containers(documents) if place.startswith("tandem-workers/")}

    assert name_asked_for("values-secure.yaml") == {"tandem-workers"}
    assert name_asked_for("values-cpu.yaml") == {None}


def test_a_rollout_waits_for_the_init_container():
    def deadlines(*arguments):
        documents = chart.documents(chart.render(None, chart.NEWEST, *arguments))
        return {rules.name_of(one): one["spec"]["progressDeadlineSeconds"] for one in rules.of_kind(documents, "Deployment")}

    assert deadlines() == {"tandem-router": 2520, "tandem-workers": 2400}
    fetched = ("--set", "models.source=initContainer,models.initContainer.image=fetch:1,models.initContainer.seconds=60")
    assert deadlines(*fetched) == {"tandem-router": 2580, "tandem-workers": 2460}


def test_the_user_s_security_context_overrides_the_chart_s():
    text = chart.render(None, chart.NEWEST, "--set", "podSecurityContext.runAsUser=1000650000",
                        "--set", "podSecurityContext.seccompProfile.type=Localhost")
    for name, _, spec in rules.pods(chart.documents(text)):
        context = spec["securityContext"]
        assert context["runAsUser"] == 1000650000 and context["runAsNonRoot"] is True and context["fsGroup"] == 65532, name
        assert context["seccompProfile"] == {"type": "Localhost"}, name


def test_keda_authenticates_to_prometheus():
    def references(*arguments):
        documents = chart.documents(chart.render(chart.CHART / "examples" / "values-monitored.yaml", chart.NEWEST, *arguments))
        return [trigger.get("authenticationRef") for trigger in rules.of_kind(documents, "ScaledObject")[0]["spec"]["triggers"]]

    assert references() == [None, None]
    assert references("--set", "workers.autoscaling.authenticationRef=prometheus") == [{"name": "prometheus"}] * 2


def test_helm_test_is_left_out_without_its_certificate():
    def tests(*arguments):
        documents = chart.documents(chart.render(chart.CHART / "examples" / "values-secure.yaml", chart.NEWEST, *arguments))
        return [one["spec"]["activeDeadlineSeconds"] for one in rules.of_kind(documents, "Pod")]

    assert tests() == [300]
    assert tests("--set", "tls.router.mutual=true") == []
    assert tests("--set", "tls.router.mutual=true,test.clientSecretName=client") == [300]


def notes(tmp_path, *arguments):
    """Helm shows NOTES.txt only after an installation. A copy of the chart therefore has it as a template."""
    copy = tmp_path / "tandem"
    for source in chart.CHART.rglob("*"):
        if source.is_file():
            target = copy / source.relative_to(chart.CHART)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    text = (copy / "templates" / "NOTES.txt").read_text()
    (copy / "templates" / "_notes.tpl").write_text('{{ define "notes" }}' + text + "{{ end }}")
    (copy / "templates" / "notes.yaml").write_text('kind: Notes\nnotes: {{ include "notes" . | toJson }}\n')
    done = chart.template("--show-only", "templates/notes.yaml", *arguments, chart=copy)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)["notes"]


def test_notes_have_the_next_commands_and_warn_of_plaintext(tmp_path):
    said = notes(tmp_path / "plain")
    assert "helm test tandem --namespace language --logs" in said
    assert "kubectl rollout status --namespace language deployment/tandem-router --timeout=2520s" in said
    assert "tandem generate --connect localhost:50051 " in said
    assert "clients' calls are in plaintext, and anybody who reaches the router may call it" in said
    said = notes(tmp_path / "secure", "--values", chart.CHART / "examples" / "values-secure.yaml")
    assert "NOTE" not in said and "--tls-ca ca.crt --token-file tokens" in said
    assert "secret --namespace language tandem-router-tls -o jsonpath='{.data.ca\\.crt}' | base64 -d > ca.crt" in said
    assert "secret --namespace language tandem-tokens -o jsonpath='{.data.tokens}' | base64 -d > tokens" in said
    said = notes(tmp_path / "http", "--set", "gateway.enabled=true,gateway.service.port=80")
    assert "http://tandem-gateway.language.svc:80/v1" in said and "requests of HTTP to the gateways are in plaintext" in said
    said = notes(tmp_path / "https", "--values", chart.CHART / "examples" / "values-http.yaml")
    assert "https://tandem-gateway.language.svc:8000/v1" in said and "NOTE" not in said
    said = notes(tmp_path / "half", "--set", "tokens.secretName=t")
    assert "clients' calls are in plaintext. See" in said
    said = notes(tmp_path / "fetched", "--set", "models.source=initContainer,models.initContainer.image=fetch:1")
    assert "set networkPolicy.extraEgress" in said and "--timeout=4320s" in said
    said = notes(tmp_path / "mps", "--set", "gpu.sharing=dra,gpu.mps.enabled=true", "--api-versions", "resource.k8s.io/v1")
    assert "MPSSupport=true" in said


def test_notes_say_what_mutual_tls_and_the_user_s_secrets_need(tmp_path):
    said = notes(tmp_path / "own", "--values", chart.EVERYTHING)
    assert "kubectl get secret --namespace language own-router-tls -o jsonpath='{.data.ca\\.crt}' | base64 -d > ca.crt" in said
    assert "own-client-tls -o jsonpath='{.data.tls\\.crt}' | base64 -d > client.crt" in said
    assert "own-client-tls -o jsonpath='{.data.tls\\.key}' | base64 -d > client.key" in said
    assert "--tls-ca ca.crt --tls-certificate client.crt --tls-key client.key --token-file tokens" in said
    assert "own-router-tls: tandem-chat-router (`helm test`" in said and "own-workers-tls: tandem-chat-workers" in said
    assert "own-gateway-tls: tandem-chat-gateway (the PodMonitor)" in said
    assert "helm test tandem" in said
    said = notes(tmp_path / "alone", "--values", chart.EVERYTHING, "--set", "test.clientSecretName=")
    assert "helm test tandem" not in said and "until\ntest.clientSecretName names a Secret" in said
    assert "--tls-certificate client.crt --tls-key client.key" in said


def test_the_readme_names_every_example():
    readme = (chart.CHART / "README.md").read_text()
    named = {pathlib.Path(found).name for found in re.findall(r"\]\(examples/([^)]+)\)", readme)}
    assert named == {example.name for example in chart.EXAMPLES}
