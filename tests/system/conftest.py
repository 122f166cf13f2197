"""Makes the client's stubs from the proto files before any test module is imported."""

import os

import stubs

stubs.make()

import pytest  # noqa: E402

import harness  # noqa: E402
from gateway_process import Gateway  # noqa: E402
from prompts import requests  # noqa: E402

# Servers without --target serve the small pair of the tests.
os.environ["TANDEM_MODELS"] = str(harness.MODELS_DIR)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Starts servers on first use and keeps them for the module: servers(draft=..., ...) -> harness.Server."""
    running = {}

    def get(**options):
        key = repr(sorted(options.items()))
        if key not in running:
            running[key] = harness.Server(tmp_path_factory.mktemp("server"), **options)
        return running[key]

    yield get
    for server in running.values():
        server.stop()


@pytest.fixture(scope="module")
def gateways(tmp_path_factory):
    """Starts gateways, which end with the module: gateways(ROUTER, option=...) -> Gateway."""
    running = []

    def get(router, **options):
        running.append(Gateway(tmp_path_factory.mktemp("gateway"), router, **options))
        return running[-1]

    yield get
    for gateway in running:
        if gateway.process.poll() is None:
            gateway.stop()


@pytest.fixture(scope="module")
def plain_bytes(servers):
    """Returns what plain decoding answers to `requests`: plain_bytes({mode: options}, target=...) -> {mode: [bytes]}."""

    def get(modes, **options):
        server = servers(drafter="none", **options)
        return {mode: [output.bytes for output in server.generate_all(requests(**of_mode), 1)] for mode, of_mode in modes.items()}

    return get


@pytest.fixture(autouse=True)
def errors_tell_nothing():
    """Checks in every test that the errors it met have no path, no pointer, and no name of a region or socket of the machine."""
    yield
    told, harness.told = harness.told, []
    assert told == []


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    return harness.Models(tmp_path_factory.mktemp("models"))
