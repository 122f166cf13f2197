"""Tests containers of the image under the restrictions of Kubernetes and compose: serving, health, metrics, stopping, and a pair of
workers with a separate router."""

import json
import os
import re
import signal
import threading
import time

import roots
from harness import descendants, wait_until

MOST_BYTES = 200_000_000  # Debian 78 MB, the pair of models 42 MB, the executables 40 MB
INSECURE = {"TANDEM_INSECURE": "true", "TANDEM_VERIFIER_INSECURE": "true", "TANDEM_DRAFT_INSECURE": "true",
            "TANDEM_GATEWAY_INSECURE": "true"}
TALES = {"TANDEM_VERIFIER_MODEL": "/opt/tandem/models/tales/target", "TANDEM_DRAFT_MODEL": "/opt/tandem/models/tales/draft"}
# The settings are options, because environment variables would also apply to `tandem generate` in the same container, which then needs its
# own server.
ROUTER = ["tandem-router", "--target", "/opt/tandem/models/tales/target", "--verifier", "127.0.0.1:50061", "--drafter", "127.0.0.1:50062"]
GREEDY = ["--temperature", "0", "--ignore-eos", "--draft-length", "4", "--json"]


def generate(container, tokens, prompt="Once upon a time"):
    """Generates through the router of the container's network, with the command line of the image."""
    done = container.exec("tandem", "generate", "--connect", "127.0.0.1:50051", "--max-tokens", tokens, *GREEDY, prompt)
    response = json.loads(done.stdout)["response"]
    assert response["completion"]["usage"]["completion_tokens"] == tokens
    return response


def get(container, port, path):
    """Returns (status, body), with the tools of the image."""
    script = 'exec 3<>/dev/tcp/127.0.0.1/$0; printf "GET $1 HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n" >&3; cat <&3'
    head, _, body = container.exec("bash", "-c", script, port, path).stdout.replace("\r\n", "\n").partition("\n\n")
    return int(head.split()[1]), body


def children(container):
    """Returns {name: process id on this machine}."""
    return {name: pid for pid, name in descendants(container.pid).items() if name.startswith("tandem-")}


def test_the_configuration_of_the_image(engine):
    image = engine.inspect()
    config = image["Config"]
    assert config["User"] == "65532:65532"
    assert config["StopSignal"] in ("SIGTERM", "15")
    assert config["Cmd"] == ["tandem", "serve"] and not config.get("Entrypoint")
    ports = [8000, 50051, 50061, 50062, 9464, 9465, 9466, 9467]
    assert sorted(config["ExposedPorts"]) == sorted(f"{port}/tcp" for port in ports)
    assert (image.get("Healthcheck") or config["Healthcheck"])["Test"] == ["CMD", "tandem-healthcheck"]
    labels = config["Labels"]
    version = re.search(r"project\(tandem VERSION (\S+)", (roots.SOURCE_DIR / "CMakeLists.txt").read_text()).group(1)
    assert labels["org.opencontainers.image.version"] == version
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    for name in ("title", "description", "revision", "base.name"):
        assert labels[f"org.opencontainers.image.{name}"]


def test_the_image_is_small(engine):
    image = engine.inspect()
    base = json.loads(engine.podman("image", "inspect", "docker.io/library/debian:12-slim").stdout)[0]
    print(f"image: {image['Size'] / 1e6:.0f} MB, {base['Size'] / 1e6:.0f} of them Debian's")
    assert base["Size"] < image["Size"] < MOST_BYTES


def test_a_container_serves_and_drains(start):
    server = start("tandem", "serve", environment=INSECURE)
    wait_until(server.is_healthy, 60, "healthy\n" + server.logs())
    assert generate(server, 24)["completion"]["speculation"]["num_accepted_tokens"] > 0
    assert get(server, 9464, "/readyz")[0] == 200
    for port, metric in ((9464, "tandem_emitted_tokens_total"), (9465, "tandem_kv_pages"), (9466, "tandem_kv_pages")):
        status, text = get(server, port, "/metrics")
        assert status == 200 and re.search(rf"^{metric}\{{", text, re.MULTILINE)
    # Draft distributions travel through shared memory in a container too.
    server.exec("tandem", "generate", "--connect", "127.0.0.1:50051", "--max-tokens", "24", "--draft-length", "4", "Once upon a time")
    assert re.search(r'tandem_ring_bytes_total\{.*transport="shm".*\} [1-9]', get(server, 9466, "/metrics")[1])

    # A running stream finishes before the container ends, and the executable ends in order.
    lines = []
    begun = server.logs().count("request started")
    stream = threading.Thread(target=lambda: lines.append(generate(server, 900)))
    stream.start()
    # The stream lasts for less than a second. A look at the metrics may come too late, but the log stays.
    wait_until(lambda: server.logs().count("request started") > begun, 30, "the stream has begun")
    began = time.monotonic()
    assert server.stop() == 0, server.logs()
    assert time.monotonic() - began < 45  # it is killed after a minute
    stream.join()
    assert len(lines) == 1, "the stream was cut"


def test_a_container_is_confined(start):
    server = start("tandem", "serve", environment=INSECURE)
    wait_until(server.is_healthy, 60, "healthy")
    for pid in [server.pid, *descendants(server.pid)]:
        status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status").read().splitlines())
        assert status["Uid"].split() == status["Gid"].split() == [str(roots.USER)] * 4
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == 0
        assert status["NoNewPrivs"].strip() == "1"
    assert "Read-only file system" in server.exec("touch", "/opt/tandem/x", check=False).stderr
    found = server.exec("find", "/run/tandem", "-type", "d", "-name", "tandem-run-*", "-printf", "%m %U").stdout
    assert found == f"700 {roots.USER}"


def test_a_worker_that_dies_is_restarted(start):
    server = start("tandem", "serve", environment=INSECURE)
    wait_until(server.is_healthy, 60, "healthy")
    before = children(server)["tandem-verifier"]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: children(server).get("tandem-verifier") not in (None, before), 30, "another verifier")
    wait_until(server.is_healthy, 30, "healthy again")
    generate(server, 8)
    assert server.stop() == 0


def test_health_is_that_of_the_router(start):
    """Without a verifier, the router runs and is not ready."""
    router = start(*ROUTER, environment=INSECURE)

    def status():
        try:
            return get(router, 9464, "/healthz")[0]
        except AssertionError:
            return None  # not yet

    wait_until(lambda: status() == 200, 60, "the router listens\n" + router.logs())
    assert get(router, 9464, "/readyz")[0] == 503
    assert not router.is_healthy()
    assert router.stop() == 0


def test_a_pair_of_workers_and_a_router_beside_it(start):
    workers = start("tandem-workers", environment=INSECURE | TALES)
    wait_until(workers.is_healthy, 60, "healthy\n" + workers.logs())
    router = start(*ROUTER, options=["--network", f"container:{workers.id}"], environment=INSECURE)
    wait_until(router.is_healthy, 60, "healthy\n" + router.logs())
    assert generate(router, 24)["completion"]["speculation"]["num_accepted_tokens"] > 0
    # The workers hand rows over directly, although the router is in another container.
    router.exec("tandem", "generate", "--connect", "127.0.0.1:50051", "--max-tokens", "24", "--draft-length", "4", "Once upon a time")
    assert re.search(r'tandem_ring_bytes_total\{.*transport="shm".*\} [1-9]', get(workers, 9466, "/metrics")[1])
    assert router.stop() == 0
    began = time.monotonic()
    assert workers.stop() == 0, workers.logs()
    assert time.monotonic() - began < 45  # they are killed after a minute


def test_a_gateway_beside_it_speaks_http(start):
    server = start("tandem", "serve", environment=INSECURE)
    gateway = start("tandem-gateway", options=["--network", f"container:{server.id}"], environment=INSECURE)
    # Its health says whether the router answers.
    wait_until(server.is_healthy, 60, "healthy\n" + server.logs())
    wait_until(gateway.is_healthy, 60, "healthy\n" + gateway.logs())
    status, models = get(gateway, 8000, "/v1/models")
    assert status == 200 and json.loads(models)["data"][0]["id"]

    def is_counted():  # after the answer is written
        status, text = get(gateway, 9467, "/metrics")
        assert status == 200
        return re.search(r'^tandem_http_requests_total\{path="/v1/models",status="200"\} 1\b', text, re.MULTILINE)

    wait_until(is_counted, 20, "the request is counted")
    assert server.stop() == 0
    assert not gateway.is_healthy()
    assert gateway.stop() == 0


def test_a_pair_ends_with_either_of_its_workers(start):
    for name, code in (("tandem-verifier", 11), ("tandem-draft", 12)):
        workers = start("tandem-workers", environment=INSECURE | TALES)
        wait_until(workers.is_healthy, 60, "healthy\n" + workers.logs())
        os.kill(children(workers)[name], signal.SIGKILL)
        assert workers.exit_code(timeout=30) == code
        assert f"{name.removeprefix('tandem-')} worker ended with status 137" in workers.logs()
