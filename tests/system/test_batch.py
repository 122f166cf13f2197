"""Tests `tandem batch` before a real server with the small pair."""

import json
import signal
import subprocess

import pytest

import harness

TANDEM = str(harness.BINARY_DIR / "bin" / "tandem")
OPENING = "Once upon a time there was a king who"


@pytest.fixture(scope="module")
def server(servers, tmp_path_factory):
    """With little room, so that lines are refused and sent again."""
    template = tmp_path_factory.mktemp("template") / "chat.jinja"
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    return servers(chat_template=template, max_slots=2, max_queue=1)


def line(custom_id, url="/v1/completions", **body):
    if url == "/v1/completions":
        body = {"prompt": OPENING, "max_tokens": 6, "temperature": 0, **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}) + "\n"


def command(server, tmp_path, *arguments):
    return [TANDEM, "batch", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl"), "--connect", server.address, *arguments]


def run(server, tmp_path, lines, *arguments):
    (tmp_path / "in.jsonl").write_text("".join(lines))
    return subprocess.run(command(server, tmp_path, *arguments), capture_output=True, text=True, timeout=60)


def answers(tmp_path):
    """Returns {custom_id: response}, and checks that each is there once."""
    found = {}
    for text in (tmp_path / "out.jsonl").read_text().splitlines():
        answer = json.loads(text)
        assert set(answer) == {"id", "custom_id", "response", "error"} and answer["error"] is None
        assert answer["custom_id"] not in found
        found[answer["custom_id"]] = answer["response"]
    return found


def test_lines_are_answered_and_bad_ones_are_named(server, tmp_path):
    done = run(server, tmp_path, [
        line("plain"), line("two", prompt=["a", "b"], n=2), line("echo", echo=True), "no JSON\n", "\n", line("plain"),
        line("hot", temperature=-3), line("stream", stream=True),
        line("chat", "/v1/chat/completions", messages=[{"role": "user", "content": OPENING}], max_tokens=6, temperature=0)])
    assert done.returncode == 1 and done.stdout == ""
    for words in ("line 4: the line is not a JSON object", 'line 6: custom_id: "plain" is that of line 1',
                  "line 7: 400: temperature: got -3", "line 8: 400: stream: got true", "8 of 8 lines, 4 failed",
                  "The lines that failed must be corrected first."):
        assert words in done.stderr
    found = answers(tmp_path)
    assert {name: response["status_code"] for name, response in found.items()} == {
        "plain": 200, "two": 200, "echo": 200, "hot": 400, "stream": 400, "chat": 200}
    (choice,) = found["plain"]["body"]["choices"]
    assert choice["text"] == server.generate(OPENING, max_tokens=6, temperature=0).text
    assert found["echo"]["body"]["choices"][0]["text"] == OPENING + choice["text"]
    assert found["chat"]["body"]["choices"][0]["message"]["content"] == choice["text"]
    assert len(found["two"]["body"]["choices"]) == 4
    assert found["hot"]["body"]["error"]["param"] == "temperature"


def test_a_second_run_sends_only_what_is_left(server, tmp_path):
    good = [line(f"good{i}") for i in range(4)]
    assert run(server, tmp_path, [*good, line("bad", max_tokens=-1)]).returncode == 1
    out = tmp_path / "out.jsonl"
    kept = [text for text in out.read_text().splitlines(keepends=True) if "bad" not in text][:3]
    failed = next(text for text in out.read_text().splitlines(keepends=True) if "bad" in text)
    out.write_text("".join([*kept, failed]) + '{"id":"half a li')
    before = server.info().load.num_finished
    done = run(server, tmp_path, [*good, line("bad")])
    assert done.returncode == 0, done.stderr
    assert "3 lines were answered before" in done.stderr
    assert server.info().load.num_finished == before + 2
    assert out.read_text().startswith("".join(kept))
    assert {name: response["status_code"] for name, response in answers(tmp_path).items()} == dict.fromkeys(
        ["bad", "good0", "good1", "good2", "good3"], 200)


def test_lines_wait_while_the_server_has_no_room(server, tmp_path):
    done = run(server, tmp_path, [line(str(i), max_tokens=80, ignore_eos=True) for i in range(16)], "--concurrency", "12")
    assert done.returncode == 0, done.stderr
    assert len(answers(tmp_path)) == 16
    assert "requests turned away" in server.log()


def test_ctrl_c_ends_a_batch_and_the_same_command_goes_on(server, tmp_path):
    lines = [line("short"), *(line(f"long{i}", max_tokens=900, ignore_eos=True) for i in range(8))]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    process = subprocess.Popen(command(server, tmp_path), stderr=subprocess.PIPE, text=True)
    out = tmp_path / "out.jsonl"
    harness.wait_until(lambda: out.exists() and b"\n" in out.read_bytes(), 30, "a line is answered")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "interrupted" in errors and "lines were not answered. The same command goes on with them" in errors
    first = set(answers(tmp_path))
    # Which line is answered first is open, because the server has no room for all and refused lines wait.
    assert 1 <= len(first) < len(lines)
    harness.wait_until(lambda: server.info().load.num_running == 0, 30, "the calls are canceled")
    done = run(server, tmp_path, lines[:3])
    assert done.returncode == 0, done.stderr
    assert set(answers(tmp_path)) == first | {"short", "long0", "long1"}


def test_a_missing_input_is_named(server, tmp_path):
    done = subprocess.run(command(server, tmp_path), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"FILE: cannot open {tmp_path / 'in.jsonl'}: No such file or directory" in done.stderr


def test_a_file_that_is_no_output_is_left_alone(server, tmp_path):
    (tmp_path / "out.jsonl").write_text("my diary\n")
    done = run(server, tmp_path, [line("a")])
    assert done.returncode == 2 and "--output: line 1" in done.stderr
    assert (tmp_path / "out.jsonl").read_text() == "my diary\n"
    (tmp_path / "out.jsonl").unlink()
    (tmp_path / "out.jsonl").symlink_to(tmp_path / "in.jsonl")
    done = run(server, tmp_path, [line("a")])
    assert done.returncode == 2 and "--output: is FILE itself" in done.stderr
    (tmp_path / "out.jsonl").unlink()
    (tmp_path / "out.jsonl.new").hardlink_to(tmp_path / "in.jsonl")
    done = run(server, tmp_path, [line("a")])
    assert done.returncode == 2 and "--output: with .new added, this is FILE" in done.stderr
    assert (tmp_path / "out.jsonl.new").read_text() == line("a") and not (tmp_path / "out.jsonl").exists()
