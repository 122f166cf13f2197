"""Tests what `tandem serve` writes to standard error: valid JSON on request, and prompts only on request."""

import json
import re
import subprocess

import grpc
import pytest

import harness
from prompts import PROMPTS

SECRET = "Rumpelstilzchen eats 7 radishes"


def json_lines(server):
    return [json.loads(line) for line in server.log().splitlines()]


def drive(server):
    """Sends a request that ends well, one that is refused, and one that is canceled."""
    server.generate(SECRET, request_id="well", seed=1, max_tokens=12, ignore_eos=True)
    with pytest.raises(grpc.RpcError):
        server.generate(SECRET, request_id="refused", top_p=2.0)
    stream = server.start(SECRET, request_id="canceled", max_tokens=900, ignore_eos=True)
    next(stream)
    stream.cancel()
    harness.wait_until(lambda: re.search("finished.*canceled|canceled.*finished", server.log()), 30, "its end is logged")


def test_every_line_is_a_json_object_with_time_level_process_and_message(tmp_path):
    server = harness.Server(tmp_path, log_format="json")
    drive(server)
    assert server.stop() == 0
    lines = json_lines(server)
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"]), line
        assert line["level"] in ("debug", "info", "warning", "error") and line["message"], line
    assert {line["process"] for line in lines} >= {"tandem", "router", "draft", "verifier"}


def test_requests_are_logged_by_id_with_tokens_acceptance_seconds_and_status(tmp_path):
    server = harness.Server(tmp_path, log_format="json")
    drive(server)
    server.stop()
    by_id = {}
    for line in json_lines(server):
        by_id.setdefault(line.get("request_id"), []).append(line)
    started, finished = by_id["well"]
    assert started["message"] == "request started" and started["mode"] == "reproducible"
    assert started["prompt_tokens"] > 4 and started["max_tokens"] == 12
    assert finished["message"] == "request finished" and finished["status"] == "OK" and finished["tokens"] == 12
    assert 0 <= finished["acceptance_rate"] <= 1 and finished["seconds"] > 0
    assert finished["slot"] == 0 and finished["epoch"] >= 1
    (refused,) = by_id["refused"]
    assert refused["message"] == "request refused" and refused["status"] == "INVALID_ARGUMENT"
    assert "top_p" in refused["detail"]
    assert [line["message"] for line in by_id["canceled"]] == ["request started", "request finished"]
    assert by_id["canceled"][1]["status"] == "CANCELLED" and by_id["canceled"][1]["tokens"] >= 1
    assert by_id["canceled"][1]["slot"] == 0 and by_id["canceled"][1]["epoch"] > finished["epoch"]


def test_slots_are_named_with_their_epoch(tmp_path):
    server = harness.Server(tmp_path, log_format="json", environment={"TANDEM_LOG_LEVEL": "debug"})
    for name in ("first", "second"):
        server.generate(PROMPTS[0], request_id=name, max_tokens=2)
    server.stop()
    taken = [line for line in json_lines(server) if line["message"] == "slot taken"]
    assert [line["request_id"] for line in taken] == ["first", "second"]
    assert all(line["slot"] == 0 for line in taken)
    assert taken[0]["epoch"] < taken[1]["epoch"]
    finished = [line for line in json_lines(server) if line["message"] == "request finished"]
    assert [(line["slot"], line["epoch"]) for line in finished] == [(line["slot"], line["epoch"]) for line in taken]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_prompts_are_logged_only_when_asked_for(tmp_path, log_format):
    (tmp_path / "without").mkdir()
    (tmp_path / "with").mkdir()
    quiet = harness.Server(tmp_path / "without", log_format=log_format, environment={"TANDEM_LOG_LEVEL": "debug"})
    drive(quiet)
    ids = list(quiet.stub.Tokenize(harness.pb.TokenizeRequest(text=SECRET)).ids)
    quiet.stop()
    assert "request started" in quiet.log()
    assert "Rumpel" not in quiet.log() and ", ".join(map(str, ids[1:4])) not in quiet.log()
    assert ",".join(map(str, ids[1:4])) not in quiet.log()

    asked = harness.Server(tmp_path / "with", log_format=log_format, environment={"TANDEM_LOG_PROMPTS": "true"})
    drive(asked)
    asked.stop()
    assert SECRET in asked.log() and ",".join(map(str, ids[1:4])) in asked.log()


def test_a_start_that_fails_ends_with_json_too(tmp_path):
    done = subprocess.run([harness.BINARY_DIR / "bin" / "tandem", "serve", "--listen", "127.0.0.1:0", "--log-format", "json",
                           "--target", tmp_path], capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert lines[-1]["level"] == "error" and lines[-1]["process"] == "tandem"
    assert any("config.json" in line["message"] for line in lines)
