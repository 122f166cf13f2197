"""Tests deploy/compose.yaml without its images: its schema, its mounts, its published ports, and the files that Prometheus and Grafana
find."""

import json
import re

import jsonschema
import pytest
import yaml

import roots
import settings

DEPLOY = roots.SOURCE_DIR / "deploy"


@pytest.fixture(scope="module")
def schema():
    with open(roots.run(roots.HERE / "fetch_compose_schema.sh").stdout.strip()) as file:
        return json.load(file)


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def mounts(service):
    """Returns {path inside: file outside} for the mounts from this repository."""
    found = {}
    for volume in service.get("volumes", []):
        source, target, *mode = volume.split(":")
        if source.startswith("."):
            assert mode == ["ro"], volume
            found[target] = DEPLOY / source
    return found


def test_fits_the_specification(compose, schema):
    validator = jsonschema.Draft201909Validator(schema)
    assert [error.message for error in validator.iter_errors(compose)] == []
    assert not validator.is_valid(dict(compose, services={"tandem": {"image": "tandem", "read_onyl": True}}))


def test_the_named_files_exist(compose):
    for service in compose["services"].values():
        for path in mounts(service).values():
            assert path.is_file(), path
        for volume in service.get("volumes", []):
            assert volume.startswith(".") or volume.split(":")[0] in compose["volumes"]
        for other in service.get("depends_on", {}):
            assert other in compose["services"]
    build = compose["services"]["tandem"]["build"]
    context = (DEPLOY / build["context"]).resolve()
    assert context == roots.SOURCE_DIR
    assert (context / build["dockerfile"]).is_file()


def test_ports_are_published_only_on_loopback(compose):
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert {port.split(":")[1] for port in published} == {"50051", "8000", "9464", "9090", "3000"}
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_service_is_confined(compose):
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"] and "cap_add" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged") and service.get("user") != "root", name
        assert service.get("pid") is None and service.get("ipc") is None and service.get("network_mode") != "host", name


def test_images_have_versions(compose):
    built = {service["image"] for service in compose["services"].values() if "build" in service}
    for name, service in compose["services"].items():
        assert service["image"] in built or re.fullmatch(r"docker\.io/[\w/-]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_settings_are_tandems_own(compose):
    tandem = compose["services"]["tandem"]
    assert set(tandem["environment"]) <= settings.known()
    assert tandem["healthcheck"]["test"] == ["CMD", "tandem-healthcheck"]
    # The folders and the user of the image.
    assert [entry.split(":")[0] for entry in tandem["tmpfs"]] == ["/tmp", roots.dockerfile_environment()["XDG_RUNTIME_DIR"]]
    assert f"uid={roots.USER},gid={roots.USER}" in tandem["tmpfs"][1]


def test_it_waits_longer_than_a_drain(compose):
    grace = compose["services"]["tandem"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) >= settings.drain_seconds() + 15


def test_a_gateway_is_there_if_asked_for(compose):
    gateway = compose["services"]["gateway"]
    assert gateway["profiles"] == ["http"]
    assert [name for name, service in compose["services"].items() if "profiles" in service] == ["gateway"]
    assert set(gateway["environment"]) <= settings.known() and gateway["image"] == compose["services"]["tandem"]["image"]
    program, flag, router = gateway["command"]
    host, port = router.split(":")
    assert (program, flag, port) == ("tandem-gateway", "--connect", roots.dockerfile_environment()["TANDEM_LISTEN"].split(":")[1])
    assert list(gateway["depends_on"]) == [host]
    assert gateway["healthcheck"]["test"] == ["CMD", "tandem-healthcheck"]
    (published,) = gateway["ports"]
    assert published.split(":")[2] == roots.dockerfile_environment()["TANDEM_GATEWAY_LISTEN"].split(":")[1]
    assert int(gateway["stop_grace_period"].removesuffix("s")) >= settings.drain_seconds("tandem-gateway") + 5
    # Prometheus asks for its name, and finds nothing where there is no gateway.
    (discovery,) = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"][1]["dns_sd_configs"]
    assert discovery["names"] == gateway["networks"]["default"]["aliases"]
    assert str(discovery["port"]) == roots.dockerfile_environment()["TANDEM_GATEWAY_ADMIN"].split(":")[1]


def test_prometheus_reads_our_configuration(compose, tmp_path):
    """The rules must be at the place where the configuration looks for them, with the mounts of compose."""
    service = compose["services"]["prometheus"]
    for inside, outside in mounts(service).items():
        copy = tmp_path / inside.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(outside.read_text())
    folder = roots.run(roots.SOURCE_DIR / "tests" / "system" / "fetch_prometheus.sh").stdout.strip()
    done = roots.run(f"{folder}/promtool", "check", "config", tmp_path / "etc" / "prometheus" / "prometheus.yml")
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    assert f"{sum(len(group['rules']) for group in rules['groups'])} rules found" in done.stdout
    # Prometheus scrapes loopback, which belongs to Tandem because they share a network.
    assert service["network_mode"] == "service:tandem"
    targets = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"]
    image = roots.dockerfile_environment()
    assert [target["targets"][0].split(":")[1] for target in targets] == [
        image[name].split(":")[1] for name in ("TANDEM_ADMIN", "TANDEM_VERIFIER_ADMIN", "TANDEM_DRAFT_ADMIN")]


def test_grafana_finds_prometheus_and_the_dashboard(compose):
    service = compose["services"]["grafana"]
    mounted = mounts(service)
    provisioning = {path.split("/")[4]: yaml.safe_load(file.read_text())
                    for path, file in mounted.items() if path.startswith("/etc/grafana/provisioning/")}
    (source,) = provisioning["datasources"]["datasources"]
    # Prometheus has the name of the service whose network it shares.
    shared = compose["services"]["prometheus"]["network_mode"].removeprefix("service:")
    assert source["type"] == "prometheus" and source["isDefault"] and source["url"] == f"http://{shared}:9090"
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scrape
    (provider,) = provisioning["dashboards"]["providers"]
    (dashboard,) = [path for path in mounted if path.startswith(provider["options"]["path"] + "/")]
    assert mounted[dashboard].resolve() == DEPLOY / "grafana" / "tandem.json"
    assert service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard
    # The dashboard uses the chosen data source, which is the default one at first.
    variables = json.loads((DEPLOY / "grafana" / "tandem.json").read_text())["templating"]["list"]
    assert [variable["query"] for variable in variables if variable["type"] == "datasource"] == [source["type"]]
