"""A gateway of its own before a router, and HTTP requests to it."""

import http.client
import json
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import harness


class Gateway:
    """A gateway process before a router."""

    def __init__(self, folder, router, **options):
        self.log_path = folder / f"gateway-{time.monotonic_ns()}.log"
        command = [str(harness.BINARY_DIR / "bin" / "tandem-gateway"), "--listen", options.pop("listen", "127.0.0.1:0"),
                   "--connect", router]
        for name, value in options.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        match = re.fullmatch(r"http: (\S+):(\d+)\n", line)
        assert match, f"{line!r}\n{self.log()}"
        self.host, self.port = match.group(1), int(match.group(2))
        self.url = f"http://{self.host}:{self.port}"

    def log(self):
        return self.log_path.read_text(errors="replace")

    def stop(self, how=signal.SIGTERM, timeout=15):
        self.process.send_signal(how)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"did not stop within {timeout} s\n{self.log()}") from None

    def call(self, method, path, body=None, headers=None, timeout=60):
        """Returns (status, headers, parsed JSON or text)."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                status, got, text = answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, got, text = error.code, error.headers, error.read().decode()
        assert not harness.TELLTALE.search(text), text
        try:
            return status, got, json.loads(text)
        except ValueError:
            return status, got, text

    def complete(self, **body):
        status, _, answer = self.call("POST", "/v1/completions", body)
        assert status == 200, answer
        return answer

    def events(self, **body):
        """Returns the data of all events of a stream, as texts."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        connection.close()
        pieces = text.split("\n\n")
        assert pieces[-1] == "" and all(piece.startswith("data: ") for piece in pieces[:-1]), text
        return [piece.removeprefix("data: ") for piece in pieces[:-1]]

    def error(self, status, path="/v1/completions", method="POST", headers=None, body=None, **fields):
        got, got_headers, answer = self.call(method, path, fields if body is None else body, headers)
        assert got == status, answer
        assert set(answer) == {"error"} and set(answer["error"]) == {"message", "type", "param", "code"}, answer
        return answer["error"], got_headers

    def connect(self):
        one = socket.create_connection((self.host, self.port), timeout=30)
        return one
