#!/usr/bin/env python3
"""Measures what tandem-gateway costs: figures.py [--pairs 10] [--seconds 4] [--requests 100] [--only NAME,...] [--out FILE]

  first_token   the time to the first token by HTTP (a raw socket) minus that by gRPC (the Python package), one client, prompts of 32 new
                tokens, in turns. Beside it stand the time that the router itself says, and that of `tandem bench serve`, a client in C++
  processor     the processor time of the gateway per token of 32 streams, over that of two clients of gRPC: `tandem bench serve`, in C++,
                and the Python package
  idle          the resident memory that 1,000 streams add while they wait for their first token, and that of 1,000 connections without
                a request
  start         the time from exec to the line `http: ADDRESS`

Runs with and without the gateway are interleaved on one server (no drafts, greedy): first_token has a tiny random target, and the others
have the embedded one. A ratio has its 95 % interval.
"""

import argparse
import json
import pathlib
import random
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import lab  # noqa: E402
from lab import harness  # noqa: E402

PROMPT_TOKENS, OUTPUT_TOKENS, CLIENTS, IDLE = 32, 64, 32, 1000


class Gateway:

    def __init__(self, router):
        start = time.monotonic()
        command = [str(lab.BINARY_DIR / "bin" / "tandem-gateway"), "--listen", "127.0.0.1:0", "--connect", router, "--log-level", "warn"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        host, _, port = self.process.stdout.readline().strip().removeprefix("http: ").rpartition(":")
        self.start_seconds = time.monotonic() - start
        self.address = host, int(port)

    def connect(self):
        one = socket.create_connection(self.address)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return one

    def processor_seconds(self):
        """Returns what all threads have used, in steps of nanoseconds."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def request(model, max_tokens, rng):
    """A request with a prompt that no cache has."""
    body = json.dumps(dict(model=model, prompt=[rng.randrange(100, 4000) for _ in range(PROMPT_TOKENS)], temperature=0, stream=True,
                           max_tokens=max_tokens, ignore_eos=True, speculation=dict(enabled=False)))
    return ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def first_token_by_http(one, model, rng):
    """Returns the time that a client with this connection saw."""
    text = request(model, 2, rng)
    start, got = time.perf_counter(), b""
    one.sendall(text)
    while b"data: {" not in got:
        got += one.recv(65536)
    seen = time.perf_counter() - start
    while not got.endswith(b"0\r\n\r\n"):
        got += one.recv(65536)
    return seen


def grpc_load(server, *options):
    return lab.bench_serve("--connect", server.address, "--drafting", "off", "--modes", "greedy", "--prompt-lengths",
                           f"fixed:{PROMPT_TOKENS}", *options)["rows"][0]


def first_token_by_grpc(server, model, rng):
    """Returns the time that the client saw, and the one that the router says."""
    ask = harness.request([rng.randrange(100, 4000) for _ in range(PROMPT_TOKENS)], model=model, temperature=0, max_tokens=2,
                          ignore_eos=True, enabled=False)
    start, seen, told = time.perf_counter(), None, None
    for message in server.stub.Generate(ask):
        seen = seen or time.perf_counter() - start
        if message.HasField("completion"):
            told = message.completion.timings.time_to_first_token_seconds
    return seen, told


def first_token(_, __, arguments):
    """Uses a tiny target, whose passes take little time and so have little noise."""
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        folder = pathlib.Path(folder)
        harness.Models.write(folder / "tiny", vocabulary_size=4096, hidden_size=64, layers=1, heads=2, kv_heads=1, head_size=32,
                             intermediate_size=128, dtype="bf16", max_positions=1024, tokenizer_from=harness.TALES_TARGET)
        server = harness.Server(folder, target=folder / "tiny", drain_seconds=0)
        gateway = Gateway(server.address)
        try:
            return first_tokens(server, gateway, arguments)
        finally:
            gateway.stop()
            server.stop()


def first_tokens(server, gateway, arguments):
    model, rng, rows = server.info().model, random.Random(1), []
    with gateway.connect() as one:
        for _ in range(20 + arguments.pairs * arguments.requests):
            rows.append((first_token_by_http(one, model, rng), *first_token_by_grpc(server, model, rng)))
    rows = rows[20:]
    in_cpp = [grpc_load(server, "--output-lengths", "fixed:2", "--clients", 1, "--requests", arguments.requests)
              ["time_to_first_token_seconds"]["p50"] for _ in range(arguments.pairs)]
    http, grpc, router = ([1e3 * row[i] for row in rows] for i in range(3))
    blocks = [statistics.median(http[i::10]) - statistics.median(grpc[i::10]) for i in range(10)]
    margin = lab.t_quantile(9) * statistics.stdev(blocks) / 10**0.5
    return {"requests": len(rows), "http_ms": statistics.median(http), "grpc_ms": statistics.median(grpc),
            "router_ms": statistics.median(router), "grpc_in_cpp_ms": 1e3 * statistics.median(in_cpp),
            "added_ms": {"mean": (mean := statistics.fmean(blocks)), "low": mean - margin, "high": mean + margin}}


def tokens_by_http(gateway, model, seconds, rng):
    """Lets 32 clients stream for a while. Returns (tokens, processor time of the gateway)."""
    selector = selectors.DefaultSelector()
    for _ in range(CLIENTS):
        one = gateway.connect()
        one.sendall(request(model, OUTPUT_TOKENS, rng))
        selector.register(one, selectors.EVENT_READ)
    tokens, end = 0, time.monotonic() + 1 + seconds
    begin = None
    while time.monotonic() < end:
        if begin is None and time.monotonic() > end - seconds:  # the first second is to get going
            tokens, begin = 0, gateway.processor_seconds()
        for key, _ in selector.select(0.1):
            data = key.fileobj.recv(65536)
            tokens += data.count(b"data: {")
            if data.endswith(b"0\r\n\r\n"):
                key.fileobj.sendall(request(model, OUTPUT_TOKENS, rng))
    used = gateway.processor_seconds() - begin
    for key in list(selector.get_map().values()):
        key.fileobj.close()
    return tokens, used


def tokens_by_python(server, model, seconds, rng):
    """Lets 32 threads stream for a while with gRPC's Python package. Returns (tokens, processor time of this process)."""
    counts, stop = [0] * CLIENTS, threading.Event()

    def stream(i):
        while not stop.is_set():
            ask = harness.request([rng.randrange(100, 4000) for _ in range(PROMPT_TOKENS)], model=model, temperature=0,
                                  max_tokens=OUTPUT_TOKENS, ignore_eos=True, enabled=False)
            for message in server.stub.Generate(ask):
                counts[i] += len(message.token_ids)

    threads = [threading.Thread(target=stream, args=(i,)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    before, begin = sum(counts), time.process_time()
    time.sleep(seconds)
    tokens, used = sum(counts) - before, time.process_time() - begin
    stop.set()
    for thread in threads:
        thread.join()
    return tokens, used


def processor(server, gateway, arguments):
    model, rng, rows = server.info().model, random.Random(2), []
    for _ in range(arguments.pairs):
        tokens, seconds = tokens_by_http(gateway, model, arguments.seconds, rng)
        harness.wait_until(lambda: server.info().load.num_running == 0, 10, "the slots are free")
        row = grpc_load(server, "--output-lengths", f"fixed:{OUTPUT_TOKENS}", "--clients", CLIENTS, "--seconds", arguments.seconds,
                        "--warm-up", 1)
        python_tokens, python_seconds = tokens_by_python(server, model, arguments.seconds, rng)
        rows.append((seconds / tokens, row["cpu_seconds"]["client"] / row["tokens"], tokens / arguments.seconds, row["tokens_per_second"],
                     python_seconds / python_tokens))
    return {"gateway_us": [round(1e6 * row[0], 2) for row in rows], "client_us": [round(1e6 * row[1], 2) for row in rows],
            "python_us": [round(1e6 * row[4], 2) for row in rows],
            "http_tokens_per_second": statistics.median(row[2] for row in rows),
            "grpc_tokens_per_second": statistics.median(row[3] for row in rows),
            "ratio": lab.mean_ratio([row[0] / row[1] for row in rows]),
            "python_ratio": lab.mean_ratio([row[0] / row[4] for row in rows])}


def idle(server, _, arguments):
    model, rng, found = server.info().model, random.Random(3), {"streams": [], "connections": []}
    for _ in range(min(arguments.pairs, 3)):
        for kind in found:
            gateway = Gateway(server.address)  # a new one: freed memory of another run would be used again
            with gateway.connect() as one:
                for _ in range(20):
                    first_token_by_http(one, model, rng)
            before = lab.memory_bytes(gateway.process.pid)["resident"]
            clients = [gateway.connect() for _ in range(IDLE)]
            for one in clients:
                one.sendall(request(model, 3000, rng) if kind == "streams" else b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if kind == "streams":
                slots = server.info().max_slots
                harness.wait_until(lambda slots=slots: server.info().load.num_queued >= IDLE - slots, 30, "they wait")
            else:
                for one in clients:
                    one.recv(65536)
            found[kind].append((lab.memory_bytes(gateway.process.pid)["resident"] - before) / IDLE / 1024)
            for one in clients:
                one.close()
            gateway.stop()
            harness.wait_until(lambda: server.info().load.num_running + server.info().load.num_queued == 0, 30, "they have left")
    return {"kib_of_a_stream": statistics.median(found["streams"]), "kib_of_a_connection": statistics.median(found["connections"]), **found}


def start(server, _, arguments):
    times = []
    for _ in range(2 * arguments.pairs):
        gateway = Gateway(server.address)
        times.append(1e3 * gateway.start_seconds)
        gateway.stop()
    return {"median_ms": statistics.median(times), "largest_ms": max(times), "count": len(times)}


FIGURES = {"first_token": first_token, "processor": processor, "idle": idle, "start": start}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--only", default=",".join(FIGURES))
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    result = {"machine": lab.machine(), "pairs": arguments.pairs}
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        server = harness.Server(pathlib.Path(folder), environment=harness.PATIENT, target=harness.EMBEDDED_TARGET,
                                draft=harness.EMBEDDED_DRAFT, max_queue=2 * IDLE, drain_seconds=0)
        gateway = Gateway(server.address)
        try:
            for name in arguments.only.split(","):
                result[name] = FIGURES[name](server, gateway, arguments)
                print(name, json.dumps(result[name], indent=1), flush=True)
        finally:
            gateway.stop()
            server.stop()
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
