"""Fixtures: the package, which is installed before a test is imported, and servers."""

import importlib.util
import os
import pathlib
import sys

SYSTEM = pathlib.Path(__file__).resolve().parents[1] / "system"
sys.path.insert(1, str(SYSTEM))

import package  # noqa: E402, F401

# The fixtures of the system tests. That file has the name of this one.
spec = importlib.util.spec_from_file_location("system_conftest", SYSTEM / "conftest.py")
system_conftest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(system_conftest)
servers, errors_tell_nothing = system_conftest.servers, system_conftest.errors_tell_nothing

import pytest  # noqa: E402

import harness  # noqa: E402
import scripted_server  # noqa: E402
from tandem_client import Client  # noqa: E402

os.environ["TANDEM_MODELS"] = str(harness.SOURCE_DIR / "models")


@pytest.fixture(scope="module")
def server(servers):
    return servers(environment=harness.PATIENT)


@pytest.fixture
def client(server):
    with Client(server.address, timeout=60) as client:
        yield client


@pytest.fixture
def scripted():
    """Starts servers that answer as told: scripted([answer, …]) -> scripted_server.ScriptedServer."""
    running = []

    def start(*answers):
        running.append(scripted_server.ScriptedServer(answers))
        return running[-1]

    yield start
    for one in running:
        one.stop()
