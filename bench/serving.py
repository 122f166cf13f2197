"""Measures all figures of the serving engine again: see serving.sh.

  serving.py [--quick] [--only NAME,…] [--pairs N] [--out DIR] [--model-1b DIR] [--model-3b DIR]

Every ratio comes from interleaved pairs (at least 20, unless --quick) with its 95% interval. A goal is met if the whole
interval is beyond it. Figures that are not measured again keep their values in serving.json.
"""

import argparse
import concurrent.futures
import contextlib
import datetime
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import lab
import soak as soaking

import harness
from tandem.v1 import generate_pb2 as pb

CLIENTS = "1,2,4,8,16,32"
SCRAPES = 50
MOST_SCRAPE_SECONDS = 0.010


class Bench:
    """The tools and the sizes of the measurements."""

    def __init__(self, arguments):
        self.quick = arguments.quick
        self.out = arguments.out
        self.pairs = arguments.pairs or (2 if self.quick else 20)
        self.models = arguments.models or lab.SOURCE_DIR / "build" / "bench-models"
        self._model_1b = arguments.model_1b
        self._model_3b = arguments.model_3b

    def size(self, full, quick):
        return quick if self.quick else full

    def quiet(self):
        """Returns options that exclude runs in which the hypervisor gave more than 5% of the processor time to other machines."""
        return () if self.quick else ("--most-stolen", 100 * lab.MOST_STOLEN)

    def random_model(self, name, **options):
        """Makes a random model once and keeps it, because large models take minutes."""
        path = self.models / name
        if not (path / "config.json").exists():
            print(f"  making the random model {path}", flush=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            made = path.with_name(name + ".part")
            harness.Models.write(made, **options)
            made.rename(path)
        return path

    def shaped(self, shape):
        """Returns a random model in the shape of Llama-3.2, or a tiny one with --quick."""
        given = self._model_1b if shape == "1b" else self._model_3b
        if given is not None:
            return given
        if self.quick:
            return self.random_model(f"tiny-{shape}", seed=1 if shape == "1b" else 2, vocabulary_size=1024, max_positions=8192)
        return self.random_model(f"random-{shape}", shape=shape)

    def small_draft_of(self, target):
        """Returns a random model with the target's vocabulary and about a hundredth of the size of a 1B model."""
        config = json.loads((target / "config.json").read_text())
        size = config["vocab_size"]
        return self.random_model(f"draft-{size}", vocabulary_size=size, hidden_size=64, layers=1, dtype="bf16",
                                 max_positions=8192, seed=7, tokenizer_from=target)

    def inflated(self, name, small, **shape):
        """Makes a trained model of the embedded pair in a larger shape (inflate_model) once, and keeps it."""
        path = self.models / name
        if not (path / "config.json").exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            made = path.with_name(name + ".part")
            options = [word for key, value in shape.items() for word in ("--" + key.replace("_", "-"), str(value))]
            done = subprocess.run([lab.BINARY_DIR / "bin" / "inflate_model", small, made, *options], capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(done.stderr)
            made.rename(path)
        return path

    def inflated_pair(self):
        """Returns the embedded target in the shape of Llama-3.2-1B, and its drafter with four times the width and twice the depth."""
        if self.quick:
            def larger(name, small, **sizes):
                return self.inflated(name, small, shape="own", vocab_size=8192, **sizes)
            return (larger("tales-target-quick", harness.TALES_TARGET, hidden_size=512, intermediate_size=1024, layers=7, heads=4,
                           kv_heads=2, head_dim=64),
                    larger("tales-draft-quick", harness.TALES_DRAFT, hidden_size=256, intermediate_size=512, layers=3, heads=4,
                           kv_heads=2, head_dim=32))
        return (self.inflated("tales-target-1b", harness.TALES_TARGET, shape="1b"),
                self.inflated("tales-draft-154mb", harness.TALES_DRAFT, shape="own", vocab_size=128256, hidden_size=512,
                              intermediate_size=1536, layers=4, heads=4, kv_heads=2, head_dim=128))

    @contextlib.contextmanager
    def server(self, environment=None, **options):
        with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
            server = harness.Server(pathlib.Path(folder), environment=environment, drain_seconds=0, **options)
            try:
                yield server
            finally:
                server.stop()


def rows_of(report):
    """Returns the columns of `tandem bench serve` that the tables show."""
    rows = []
    for row in report["rows"]:
        keep = {key: row[key] for key in
                ("clients", "mode", "drafting", "requests", "tokens_per_second", "requests_per_second", "acceptance_rate",
                 "tokens_per_pass", "failures", "utilization", "limit", "target_rows_per_second")}
        for name in ("time_to_first_token_seconds", "time_per_token_seconds", "queue_seconds"):
            keep[name] = {p: row[name][p] for p in ("p50", "p95", "p99")}
        if "target_flops" in row:
            keep["target_flops"] = row["target_flops"]
        if "ratio_to_off" in row:
            keep["ratio_to_off"] = lab.mean_ratio(row["ratios"])  # --quick has too few pairs for an interval of `tandem bench`
        rows.append(keep)
    return rows


def goal_at_least(ratio, goal):
    return {"ratio": ratio, "goal": f"at least {goal}", "met": ratio["low"] >= goal}


def goal_at_most(ratio, goal):
    return {"ratio": ratio, "goal": f"at most {goal}", "met": ratio["high"] <= goal}


# ---------------------------------------------------------------- figures


def load_embedded(bench):
    """The embedded pair under load: prompts of 16 to 128 tokens, outputs of 32 to 96."""
    report = lab.bench_serve("--clients", bench.size(CLIENTS, "1,2"), "--pairs", bench.pairs, *bench.quiet(), "--modes",
                             bench.size("greedy,sampled", "greedy"), "--prompt-lengths", "uniform:16-128",
                             "--output-lengths", bench.size("uniform:32-96", "fixed:8"), "--requests", bench.size(3, 1))
    return {"command": report["command"].split(" --json")[0], "rows": rows_of(report)}


def load_1b(bench):
    """A random target of the shape of a 1B model with a small random drafter, whose tokens are hardly ever accepted: prompts of 16 tokens,
    outputs of 8."""
    target = bench.shaped("1b")
    report = lab.bench_serve("--target", target, "--draft", bench.small_draft_of(target), "--max-context", 512, "--clients",
                             bench.size(CLIENTS, "1,2"), "--pairs", bench.pairs, "--prompt-lengths", "fixed:16",
                             "--output-lengths", "fixed:8", "--requests", 1, *bench.quiet())
    return {"rows": rows_of(report)}


def inflated_pair(bench):
    """The costs of large models with the acceptance of a trained pair: the embedded target in the shape of Llama-3.2-1B (2.5 GB), and a
    drafter of 154 MB (docs/models.md). Outputs have 32 tokens. The figures are speedups over plain decoding, for one stream with each
    draft length, and for several clients with the server's choice."""
    target, draft = bench.inflated_pair()
    pair = ["--target", target, "--draft", draft, "--max-context", 512, "--pairs", bench.pairs]
    alone = lab.bench(*pair, "--max-tokens", bench.size(32, 4), "--draft-lengths", bench.size("auto,2,4,6", "auto,2"), "--modes",
                      bench.size("greedy,sampled", "greedy"))
    served = lab.bench_serve(*pair, "--clients", bench.size("4,8", "2"), "--prompt-lengths", "fixed:16", "--output-lengths",
                             bench.size("fixed:32", "fixed:4"), "--requests", 1, *bench.quiet())
    keep = ("mode", "draft_length", "tokens_per_second", "tokens_per_pass", "alpha", "acceptance_rate", "cost_ratio", "rows_cost",
            "speedup", "speedup_95_percent", "pairs", "predicted_speedup_measured_costs", "predicted_speedup_theorem_3_8")
    return {"rows": rows_of(served), "alone": [{key: row[key] for key in keep if key in row} for row in alone["rows"]]}


def acceptance_zero(bench):
    """The embedded target with a random drafter, compared with plain decoding. The server decides whether it uses the drafter. Runs are
    short, so that there can be more of them: the machine's noise is slow, and a run of 64 tokens varies hardly more than one of 256 (0.12
    and 0.10 of a pair's ratio)."""
    draft = bench.random_model("draft-tales", vocabulary_size=4096, hidden_size=32, layers=1, dtype="bf16", max_positions=1024,
                               seed=7, tokenizer_from=harness.TALES_DRAFT)
    report = lab.bench_serve("--target", harness.TALES_TARGET, "--draft", draft, "--clients", bench.size("1,8", "1"), "--pairs",
                             bench.size(30 * bench.pairs, 2), "--modes", bench.size("greedy,sampled", "greedy"),
                             "--output-lengths", bench.size("fixed:64", "fixed:8"), "--requests", 1, *bench.quiet())
    rows = [row for row in rows_of(report) if row["drafting"] == "auto"]
    lowest = min((row["ratio_to_off"] for row in rows), key=lambda ratio: ratio["low"])
    return {"rows": rows, **goal_at_least(lowest, 0.98)}


def saturated(bench):
    """The embedded pair with 32 clients: the server's choice compared with plain decoding. Runs are short for the reason above."""
    report = lab.bench_serve("--clients", bench.size(32, 2), "--pairs", bench.size(20 * bench.pairs, 2), "--modes",
                             bench.size("greedy,sampled", "greedy"), "--output-lengths", bench.size("fixed:48", "fixed:8"),
                             "--requests", 1, *bench.quiet())
    rows = [row for row in rows_of(report) if row["drafting"] == "auto"]
    lowest = min((row["ratio_to_off"] for row in rows), key=lambda ratio: ratio["low"])
    return {"rows": rows, **goal_at_least(lowest, 0.98)}


def overload(bench):
    """Tokens per second if 2 and 10 times the number of requests arrive that can be served, relative to the tokens per second with one
    client for each slot. Outputs have about 256 tokens (the default of a request) or about 48, varied by a quarter: clients with outputs
    of equal length would go in step, and so would their prompts, unlike any real load. All requests use five connections. Only the first
    output length is judged: a refusal costs the same per call, on the same two cores, and half of that cost is the load generator's."""
    slots = 16
    lengths = (256, 48) if not bench.quick else (8,)
    rows = []
    with bench.server(max_slots=slots, max_queue=slots) as server:
        for length in lengths:
            # A rate has no limit of streams and therefore opens five connections. Each connection has its own writes.
            common = ["--pairs", 1, "--drafting", "auto", "--connections", 5,
                      "--output-lengths", f"uniform:{length * 3 // 4}-{length * 5 // 4}",
                      "--seconds", bench.size(3, 0.3), "--warm-up", bench.size(2 if length > 100 else 1, 0.1)]

            def measured(*load):
                return lab.bench_serve("--connect", server.address, *common, *load)["rows"][0]

            peak = measured("--clients", slots)["tokens_per_second"]
            for factor in (2, 10):
                refused = {}
                refused_after = []  # one entry for each run with refusals; older binaries do not report them

                def offered(_):
                    row = measured("--rate", factor * peak / length)
                    for status, count in row["failures"].items():
                        refused[status] = refused.get(status, 0) + count
                    if row.get("refused_seconds", {}).get("count"):
                        refused_after.append(row["refused_seconds"])
                    return row["tokens_per_second"]

                ratio = lab.paired(offered, lambda _: measured("--clients", slots)["tokens_per_second"], bench.pairs)
                rows.append({"output_tokens": length, "peak_tokens_per_second": peak, "factor": factor, "ratio": ratio,
                             "refused": refused,
                             "refused_seconds": {name: statistics.median(run[name] for run in refused_after)
                                                 for name in ("p50", "p99")} if refused_after else None})
    lowest = min((row["ratio"] for row in rows if row["output_tokens"] == lengths[0]), key=lambda ratio: ratio["low"])
    return {"factors": rows, **goal_at_least(lowest, 0.9)}


def memory_of(server):
    pids = {name: pid for pid, name in server.children().items()}
    return {name: lab.memory_bytes(pids[name])["private"] for name in ("tandem-router", "tandem-draft", "tandem-verifier")}


def scrape(server):
    """Measures GET /metrics of each process, each time over a new connection."""
    addresses = harness.admin_addresses(server)
    seconds = {name: [] for name in addresses}
    sizes = {}
    for _ in range(SCRAPES):
        for name, address in addresses.items():
            start = time.monotonic()
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
                sizes[name] = len(answer.read())
            seconds[name].append(time.monotonic() - start)
    return {"times": SCRAPES, "running_after": server.info().load.num_running,
            "processes": {name: {"p50": lab.percentile(values, 0.5), "p99": lab.percentile(values, 0.99), "bytes": sizes[name]}
                          for name, values in seconds.items()}}


def hold_open(bench, streams, slots):
    """Measures the private memory of each process before and during `streams` open streams with `slots` slots. Scrapes while all run."""
    with bench.server(max_slots=slots, max_queue=streams, admin="127.0.0.1:0") as server:
        lab.bench_serve("--connect", server.address, "--clients", 8, "--pairs", 1, "--output-lengths", "fixed:8")  # warms up
        before = memory_of(server)
        most = {"open": 0, "running": 0}
        during = {}
        scraped = None
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            load = pool.submit(lab.bench_serve, "--connect", server.address, "--clients", streams, "--pairs", 1, "--drafting", "off",
                               "--output-lengths", "fixed:256", "--seconds", bench.size(30, 4))
            while not load.done():
                now = server.info().load
                if now.num_running + now.num_queued > most["open"]:
                    most["open"] = now.num_running + now.num_queued
                    during = memory_of(server)
                if now.num_running > most["running"]:
                    most["running"] = now.num_running
                    during = memory_of(server)
                if scraped is None and now.num_running >= streams:
                    scraped = scrape(server)
                time.sleep(0.1)
            row = load.result()["rows"][0]
    return {"streams": streams, "slots": slots, "most_open": most["open"], "most_running": most["running"],
            "failures": row["failures"], "tokens_per_second": row["tokens_per_second"],
            "bytes_per_stream": {name: (during[name] - before[name]) / streams for name in before}, "scrape": scraped}


def thousand_streams(bench):
    """Streams held open at once on this machine, the private memory of each, and the time of a scrape while all of them run."""
    streams = bench.size(1000, 60)
    waiting = hold_open(bench, streams, 8)
    running = hold_open(bench, streams, streams)
    met = all(held["most_open"] >= streams and not held["failures"] for held in (waiting, running))
    scraped = running["scrape"]  # None: the streams never ran all at the same time
    quick_enough = scraped is not None and (  # 50 scrapes beside a test suite prove nothing
        bench.quick or max(process["p99"] for process in scraped["processes"].values()) <= MOST_SCRAPE_SECONDS)
    return {"waiting": waiting, "running": running,
            "goal": f"{streams} open, none fails, a scrape takes {1e3 * MOST_SCRAPE_SECONDS:.0f} ms at most (p99)",
            "met": met and running["most_running"] >= streams and quick_enough}


def prefix_cache(bench):
    """Time to the first token of a second request that shares 512 tokens with the first one, relative to the first one's time."""
    prefix_length = 512
    randomness = random.Random(1)

    def ids(count):
        return [randomness.randrange(300, 4000) for _ in range(count)]

    def first_token_seconds(server, prompt):
        start = time.monotonic()
        stream = server.start(prompt, temperature=0, max_tokens=2, ignore_eos=True)
        next(stream)
        seconds = time.monotonic() - start
        return seconds, harness.Output.read(stream).completion.usage.cached_prompt_tokens

    with bench.server() as server:
        ratios, first, second, cached = [], [], [], []
        for pair in range(-1, bench.pairs):
            prefix = ids(prefix_length)
            one, _ = first_token_seconds(server, prefix + ids(8))
            other, found = first_token_seconds(server, prefix + ids(8))
            if pair >= 0:
                ratios.append(other / one)
                first.append(one)
                second.append(other)
                cached.append(found)
    return {"first_seconds": lab.percentile(first, 0.5), "second_seconds": lab.percentile(second, 0.5),
            "cached_tokens": min(cached), **goal_at_most(lab.mean_ratio(ratios), 0.25)}


def stall_of(server, prompt_length, streams):
    """Returns the longest and the p99 gap between messages of running streams while a long prompt arrives."""
    gaps, stop, ready = [], threading.Event(), threading.Barrier(streams + 1)
    window = {}

    def read(index):
        stream = server.start([300 + index] * 16, temperature=0, max_tokens=4000, ignore_eos=True, enabled=False)
        times = [time.monotonic() for _ in zip(range(20), stream)]
        ready.wait()
        for _ in stream:
            times.append(time.monotonic())
            if stop.is_set():
                break
        stream.cancel()
        for before, after in zip(times, times[1:]):
            if after >= window["from"] and before <= window["to"]:
                gaps.append(after - before)

    readers = [threading.Thread(target=read, args=[index]) for index in range(streams)]
    for reader in readers:
        reader.start()
    ready.wait()
    randomness = random.Random()
    window["from"] = time.monotonic()
    prompt = [randomness.randrange(300, 4000) for _ in range(prompt_length)]
    next(server.start(prompt, temperature=0, max_tokens=1, ignore_eos=True, enabled=False))
    window["to"] = time.monotonic()
    stop.set()
    for reader in readers:
        reader.join()
    return {"p99": lab.percentile(gaps, 0.99), "max": max(gaps), "prompt_seconds": window["to"] - window["from"]}


def chunked_prefill(bench):
    """p99 time between tokens of 4 running streams while a prompt of 2,000 tokens arrives: computed in pieces, compared with all at
    once."""
    shape = bench.size(dict(hidden_size=768, layers=12, heads=12, kv_heads=4, head_size=64, intermediate_size=2048), {})
    target = bench.random_model(bench.size("middle", "middle-quick"), vocabulary_size=4096, dtype="bf16", max_positions=8192, seed=5,
                                tokenizer_from=harness.TALES_TARGET, **shape)
    at_once = {"TANDEM_STEP_ROWS": "65536", "TANDEM_STEP_SECONDS": "3600"}
    length = bench.size(2000, 200)
    with bench.server(target=target, max_context=8000) as pieces, bench.server(target=target, max_context=8000,
                                                                              environment=at_once) as whole:
        stalls = {"pieces": [], "whole": []}

        def measure(name, server):
            def run(_):
                stalls[name].append(stall_of(server, length, 4))
                return stalls[name][-1]["p99"]
            return run

        ratio = lab.paired(measure("pieces", pieces), measure("whole", whole), bench.pairs)
    medians = {name: {key: lab.percentile([stall[key] for stall in values[1:]], 0.5) for key in values[0]}
               for name, values in stalls.items()}
    return {"prompt_tokens": length, "seconds": medians, "ratio": ratio}


def tokens_per_second(bench, server, clients):
    """Returns a function for lab.paired that measures the tokens per second of one run with drafts."""
    def run(pair):
        report = lab.bench_serve("--connect", server.address, "--clients", clients, "--pairs", 1, "--drafting", "on",
                                 "--seed", pair + 2, "--requests", bench.size(4, 1), "--output-lengths", bench.size(96, 8))
        return report["rows"][0]["tokens_per_second"]
    return run


def cohorts(bench):
    """Tokens/s if drafts for one half of the requests are made while the other half is verified (--cohorts 2), relative to --cohorts 1."""
    clients = bench.size([2, 8, 32], [2])
    results = []
    with bench.server(max_slots=32, environment={"TANDEM_COHORTS": "1"}) as one, bench.server(
            max_slots=32, environment={"TANDEM_COHORTS": "2"}) as two:
        for count in clients:
            results.append({"clients": count, "ratio": lab.paired(tokens_per_second(bench, two, count),
                                                                  tokens_per_second(bench, one, count), bench.pairs)})
    return {"rows": results}


def stream_padding(bench):
    """Tokens/s of 8 clients of the embedded pair with messages of 512 bytes (--stream-padding-bytes), relative to messages without
    padding."""
    clients = bench.size(8, 2)
    with bench.server(environment={"TANDEM_STREAM_PADDING_BYTES": "512"}) as padded, bench.server() as bare:
        sizes = {}
        for name, server in (("padded", padded), ("bare", bare)):
            responses = list(server.start("Once upon a time", max_tokens=bench.size(256, 16), ignore_eos=True, temperature=0))
            sizes[name] = sum(response.ByteSize() for response in responses) / len(responses)
        ratio = lab.paired(tokens_per_second(bench, padded, clients), tokens_per_second(bench, bare, clients), bench.pairs)
    return {"message_bytes": sizes, "ratio": ratio}


def process_split(bench):
    """The same rounds in three processes relative to one process: decode seconds of the same requests."""
    def run(*arguments):
        with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
            path = pathlib.Path(folder) / "out.json"
            subprocess.run([lab.BINARY_DIR / "bin" / "process_split", "--json", path, "--pairs", str(max(2, 2 * bench.pairs)),
                            "--most-stolen", str(lab.MOST_STOLEN if not bench.quick else 1),
                            *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
            return json.loads(path.read_text())

    embedded = run("--tokens", bench.size(64, 8))
    large = run("--target", bench.shaped("3b"), "--draft", bench.shaped("1b"), "--tokens", bench.size(6, 4), "--prompt-tokens", 8)
    worst = max((mode["ratio"] for mode in large["modes"]), key=lambda ratio: ratio["high"])
    return {"embedded": embedded["modes"], "large": large["modes"], **goal_at_most(worst, 1.05)}


def soak(bench):
    """Half an hour at 80 % of the largest load that is served. Clients leave early and, in the first half, workers are killed (soak.py,
    soak.json)."""
    report = soaking.soak(soaking.parse(["--seconds", str(bench.size(1800, 4)), "--kill-every", str(bench.size(60, 1)),
                                         "--json", str(bench.out / "soak.json")]))
    kept = {key: report[key] for key in ("seconds", "load", "most_requests_per_second", "requests", "cancelled", "failures", "not_back",
                                      "verdicts",                                       "growth", "slopes")}
    return {**kept, "kills": len(report["kills"]),
            "goal": "no request fails, all comes back to what it was, memory grows by less than 1 MiB/h", "met": report["passed"]}


FIGURES = [load_embedded, load_1b, inflated_pair, acceptance_zero, saturated, overload, thousand_streams, prefix_cache, chunked_prefill,
           cohorts, stream_padding, process_split, soak]

# ---------------------------------------------------------------- report


def number(value, digits=3):
    return f"{value:.{digits}f}"


def milliseconds(values):
    return " / ".join(f"{1e3 * values[p]:.3g}" for p in ("p50", "p95", "p99"))


def interval(ratio):
    return f"{ratio['mean']:.3f}× ({ratio['low']:.3f} – {ratio['high']:.3f}, {ratio['pairs']} pairs)"


def told_after(seconds):
    """Returns the time to a refusal, as medians of the runs. Older reports do not have this time."""
    return f", told so after {1e3 * seconds['p50']:.2g} ms (p50) and {1e3 * seconds['p99']:.2g} ms (p99)" if seconds else ""


def load_table(rows):
    lines = ["| clients | mode | drafting | tokens/s | over off | first token ms p50 / p95 / p99 | ms a token p50 / p95 / p99 | "
             "accepted | verifier | drafter | cores busy | client |", "| --- " * 12 + "|"]
    for row in rows:
        used = row["utilization"]
        lines.append(f"| {row['clients']} | {row['mode']} | {row['drafting']} | {row['tokens_per_second']:.4g} | "
                     f"{interval(row['ratio_to_off']) if 'ratio_to_off' in row else '–'} | "
                     f"{milliseconds(row['time_to_first_token_seconds'])} | {milliseconds(row['time_per_token_seconds'])} | "
                     f"{100 * row['acceptance_rate']:.0f} % | {100 * used['verify']:.0f} % | {100 * used['draft']:.0f} % | "
                     f"{100 * used['cores_busy']:.0f} % | {100 * used['client']:.0f} % |")
    busiest = rows[-1]
    lines += ["", f"Limit at {busiest['clients']} clients: {busiest['limit']}."]
    if "target_flops" in busiest:
        best = max(rows, key=lambda row: row["target_flops"])
        lines.append(f"Most arithmetic in the target: {best['target_flops'] / 1e9:.0f} GFLOP/s, at {best['clients']} clients.")
    return lines


def alone_table(rows):
    lines = ["One stream. c: time of a draft step over a plain step of the target; rows: of a verify pass over one. Predicted: from α and "
             "the costs that were measured, and by Theorem 3.8 from α and c alone (docs/cli.md).", "",
             "| mode | K | tokens/s | over plain decoding | α | c | rows | tokens a pass | predicted | theorem 3.8 |", "| --- " * 10 + "|"]

    def times(value):
        return f"{value:.2f}×" if value else "–"

    for row in rows:
        if row["draft_length"] == 0:
            lines.append(f"| {row['mode']} | 0 | {row['tokens_per_second']:.3g} | | | | | | | |")
            continue
        interval = "{:.2f} – {:.2f}, ".format(*row["speedup_95_percent"]) if row["speedup_95_percent"] else ""
        lines.append(f"| {row['mode']} | {row['draft_length']} | {row['tokens_per_second']:.3g} | "
                     f"{row['speedup']:.2f}× ({interval}{row['pairs']} pairs) | {row['alpha']:.2f} | "
                     f"{row['cost_ratio']:.2f} | {row['rows_cost']:.2f} | {row['tokens_per_pass']:.2f} | "
                     f"{times(row.get('predicted_speedup_measured_costs'))} | {times(row.get('predicted_speedup_theorem_3_8'))} |")
    return lines + [""]


def render(name, figure):
    lines = []
    if "alone" in figure:
        lines += alone_table(figure["alone"])
    if "rows" in figure and figure["rows"] and "utilization" in figure["rows"][0]:
        lines += load_table(figure["rows"])
    if name == "cohorts":
        lines += [f"- {row['clients']} clients: {interval(row['ratio'])}" for row in figure["rows"]]
    if name == "overload":
        lines += [f"- outputs of {row['output_tokens']} tokens, {row['peak_tokens_per_second']:.0f} tokens/s are served; "
                  f"{row['factor']} times as many requests: {interval(row['ratio'])}; refused: {row['refused']}"
                  f"{told_after(row.get('refused_seconds'))}"
                  for row in figure["factors"]]
    if name == "thousand_streams":
        for held in (figure["waiting"], figure["running"]):
            each = ", ".join(f"{key} {value / 1024:.1f} KiB" for key, value in held["bytes_per_stream"].items())
            lines.append(f"- {held['streams']} streams, {held['slots']} slots: {held['most_open']} open and {held['most_running']} "
                         f"running at once, {held['tokens_per_second']:.4g} tokens/s; private memory a stream: {each}")
            if scraped := held.get("scrape"):
                each = ", ".join(f"{name} {1e3 * one['p50']:.1f} / {1e3 * one['p99']:.1f} ms ({one['bytes'] / 1024:.0f} KiB)"
                                 for name, one in scraped["processes"].items())
                lines.append(f"- GET /metrics, {scraped['times']} times each while all run ({scraped['running_after']} after the last), "
                             f"p50 / p99: {each}")
    if name == "prefix_cache":
        lines.append(f"- first {1e3 * figure['first_seconds']:.1f} ms, second {1e3 * figure['second_seconds']:.1f} ms, of which "
                     f"{figure['cached_tokens']} tokens were cached")
    if name == "chunked_prefill":
        for kind, seconds in figure["seconds"].items():
            lines.append(f"- {kind}: p99 {1e3 * seconds['p99']:.1f} ms, longest {1e3 * seconds['max']:.1f} ms, the prompt took "
                         f"{seconds['prompt_seconds']:.2f} s")
    if name == "process_split":
        for size in ("embedded", "large"):
            for mode in figure[size]:
                lines.append(f"- {size}, {mode['mode']}: {1e3 * mode['one_process_round_seconds']:.2f} ms a round in one process, "
                             f"{1e3 * mode['three_processes_round_seconds']:.2f} in three, {interval(mode['ratio'])}")
    if name == "stream_padding":
        sizes = figure["message_bytes"]
        lines.append(f"- a message has {sizes['bare']:.0f} bytes on average, padded {sizes['padded']:.0f}")
    if name == "soak":
        most = figure["most_requests_per_second"]
        lines += [f"- {figure['seconds'] / 60:.0f} minutes, {100 * figure['load']:.0f} % of the most that is served in each minute "
                  f"({min(most):.0f} to {max(most):.0f} requests a second): {figure['requests']} requests, "
                  f"of which {figure['cancelled']} were left early, {figure['kills']} kills; "
                  f"failures {figure['failures'] or 'none'}, not back to what it was: "
                  f"{', '.join(figure['not_back']) or 'nothing'}",
                  *(f"- memory of {name}: {line['mib_per_hour']:+.2f} MiB/h (quartiles {line['quartiles'][0]:+.2f}, "
                    f"{line['quartiles'][1]:+.2f})" for name, line in figure["growth"].items()),
                  *(f"- {name}: {line['per_hour']:+.1f} ± {2 * line['error']:.1f} an hour under load"
                    for name, line in figure["slopes"].items())]
    if "ratio" in figure:
        lines.append("")
        lines.append(f"Ratio {interval(figure['ratio'])}.")
    if "goal" in figure:
        lines.append(f"Goal: {figure['goal']}: **{'met' if figure['met'] else 'missed'}**.")
    return lines


def write_report(report, out):
    (out / "serving.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    lines = ["# Figures of the serving engine", "", f"{report['machine']}. `bench/serving.sh` makes them again.", ""]
    for measure in FIGURES:
        name = measure.__name__
        if name not in report["figures"]:
            continue
        figure = report["figures"][name]
        lines += [f"## {name.replace('_', ' ')}", "", measure.__doc__, f"Measured {figure['measured']}.", "",
                  *render(name, figure), ""]
    (out / "serving.md").write_text("\n".join(lines))


def main():
    names = [measure.__name__ for measure in FIGURES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, only to check that everything runs; no figures")
    parser.add_argument("--only", type=lambda text: text.split(","), default=names, help=", ".join(names))
    parser.add_argument("--pairs", type=int, help="interleaved pairs of each ratio (20)")
    parser.add_argument("--out", type=pathlib.Path, help="folder for serving.json and serving.md (bench/results; nothing with --quick)")
    parser.add_argument("--models", type=pathlib.Path, help="folder in which random models are made and kept (build/bench-models)")
    parser.add_argument("--model-1b", type=pathlib.Path, help="a model folder in the shape of Llama-3.2-1B, in place of a random model")
    parser.add_argument("--model-3b", type=pathlib.Path, help="a model folder in the shape of Llama-3.2-3B")
    arguments = parser.parse_args()
    unknown = set(arguments.only) - set(names)
    if unknown:
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}; there are {', '.join(names)}")

    with contextlib.ExitStack() as stack:
        if arguments.quick and arguments.models is None:
            arguments.models = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-bench-")))
        out = arguments.out
        if out is None:
            out = lab.SOURCE_DIR / "bench" / "results"
            if arguments.quick:
                out = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-bench-")))
        out.mkdir(parents=True, exist_ok=True)
        kept = out / "serving.json"
        report = json.loads(kept.read_text()) if kept.exists() else {"figures": {}}
        report["machine"] = lab.machine()
        arguments.out = out
        bench = Bench(arguments)
        missed = []
        for measure in FIGURES:
            name = measure.__name__
            if name not in arguments.only:
                continue
            print(f"{name}: {measure.__doc__}", flush=True)
            start = time.monotonic()
            figure = measure(bench)
            figure["measured"] = datetime.date.today().isoformat()
            figure["seconds_taken"] = time.monotonic() - start
            report["figures"][name] = figure
            write_report(report, out)
            print("\n".join("  " + line for line in render(name, figure)), flush=True)
            if not figure.get("met", True):
                missed.append(name)
        if missed and not arguments.quick:
            print(f"missed: {', '.join(missed)}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
