"""Runs our forward passes and llama.cpp's in turn: decode, verify curve, and prefill of one model.

    python compare.py --model FOLDER --gguf FILE [--bench build/cpu-release/bin/bench_model] [--pairs 20] [--out NAME]

Our program runs in its own process and answers one measurement at a time. llama.cpp runs in this process through
llama-cpp-python. Each pair has one measurement of each, right after each other. The script prints a Markdown table.
--out NAME also writes NAME.md and NAME.json. bench/llama_cpp/README.md says how to install llama.cpp and make the files.
"""
import argparse
import ctypes
import json
import math
import os
import platform
import random
import statistics
import subprocess
import time
from pathlib import Path

import llama_cpp

# 97.5% quantiles of Student's t, by degrees of freedom. The script needs only these.
T = {1: 12.71, 2: 4.303, 4: 2.776, 9: 2.262, 19: 2.093, 24: 2.064, 29: 2.045, 39: 2.023}


def paired_ratio(a, b):
    """Returns the geometric mean of a/b and its 95% interval."""
    logs = [math.log(x / y) for x, y in zip(a, b)]
    mean = statistics.fmean(logs)
    freedom = max(f for f in T if f <= max(1, len(logs) - 1))
    half = T[freedom] * statistics.stdev(logs) / math.sqrt(len(logs))
    return {"mean": math.exp(mean), "low": math.exp(mean - half), "high": math.exp(mean + half), "pairs": len(logs)}


class Ours:
    def __init__(self, bench, model, threads, depth, options):
        self.process = subprocess.Popen(
            [bench, "--model", model, "--threads", str(threads), "--depth", str(depth), "--interactive",
             *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("bench_model ended; see its message above")
        return float(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Theirs:
    def __init__(self, gguf, threads, depth):
        llama_cpp.llama_log_set(_quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(gguf.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {gguf}")
        self.vocabulary_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = 1024, 512, 512
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.depth = depth
        random.seed(1)
        self._pass(0, depth, False)

    def _pass(self, position, rows, all_logits):
        batch = llama_cpp.llama_batch_init(rows, 0, 1)
        batch.n_tokens = rows
        for i in range(rows):
            batch.token[i] = random.randrange(self.vocabulary_size)
            batch.pos[i] = position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = all_logits or i == rows - 1
        begin = time.perf_counter()
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)
        seconds = time.perf_counter() - begin
        llama_cpp.llama_batch_free(batch)
        return seconds

    def measure(self, what):
        kind, rows = what.split()
        if kind == "rows":
            llama_cpp.llama_memory_seq_rm(self.memory, 0, self.depth, -1)
            return self._pass(self.depth, int(rows), True)
        llama_cpp.llama_memory_clear(self.memory, True)
        seconds = self._pass(0, int(rows), False)
        llama_cpp.llama_memory_clear(self.memory, True)
        self._pass(0, self.depth, False)
        return seconds


@llama_cpp.llama_log_callback
def _quiet(level, text, user_data):
    pass


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--bench", default="build/cpu-release/bin/bench_model")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--depth", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--prefill-pairs", type=int, default=20)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 5, 8, 16])
    parser.add_argument("--matrix-units", action="store_true", help="our program multiplies on AMX's units")
    parser.add_argument("--round-activations", action="store_true", help="our program rounds activations to BF16, as llama.cpp does")
    parser.add_argument("--out")
    args = parser.parse_args()

    options = [f"--{name}" for name in ("matrix-units", "round-activations") if getattr(args, name.replace("-", "_"))]
    ours = Ours(args.bench, args.model, args.threads, args.depth, options)
    theirs = Theirs(args.gguf, args.threads, args.depth)
    weight_bytes = sum(f.stat().st_size for f in Path(args.model).glob("*.safetensors"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    report = {"cpu": cpu_name(), "threads": args.threads, "depth": args.depth, "commit": commit,
              "llama_cpp_python": llama_cpp.__version__, "weight_bytes": weight_bytes, "cases": {}}
    lines = [f"{report['cpu']}, {args.threads} threads, depth {args.depth}, weights {weight_bytes / 1e9:.2f} GB, "
             f"llama-cpp-python {llama_cpp.__version__}, commit {commit}; medians, ratios with 95 % intervals", ""]

    # Decoding is compared with the read bandwidth, and the verify curve with one row. These pairs contain only our own measurements.
    one, bandwidth = [], []
    for _ in range(args.pairs):
        one.append(ours.measure("rows 1"))
        bandwidth.append(ours.measure("bandwidth"))
    fraction = paired_ratio([weight_bytes / s for s in one], bandwidth)
    report["fraction_of_bandwidth"] = fraction
    report["bandwidth"] = statistics.median(bandwidth)
    lines += [f"Read bandwidth {statistics.median(bandwidth) / 1e9:.1f} GB/s; decode reads weights at "
              f"{100 * fraction['mean']:.1f} % of it ({100 * fraction['low']:.1f} – {100 * fraction['high']:.1f}, "
              f"{fraction['pairs']} pairs).", "",
              "| | ours | llama.cpp | llama.cpp / ours | n rows / one row, ours | llama.cpp |", "|---|---|---|---|---|---|"]
    for what in [f"rows {n}" for n in args.rows] + [f"prefill {args.prefill}"]:
        a, b, a1, b1 = [], [], [], []
        curve = what.startswith("rows") and what != "rows 1"
        for _ in range(args.pairs if what.startswith("rows") else args.prefill_pairs):
            a.append(ours.measure(what))
            if curve:
                a1.append(ours.measure("rows 1"))
            b.append(theirs.measure(what))
            if curve:
                b1.append(theirs.measure("rows 1"))
        case = {"ours_seconds": statistics.median(a), "llama_cpp_seconds": statistics.median(b),
                "llama_cpp_over_ours": paired_ratio(b, a)}
        if curve:
            case["ours_over_one_row"], case["llama_cpp_over_one_row"] = paired_ratio(a, a1), paired_ratio(b, b1)
        report["cases"][what] = case

        def show(r):
            return f"{r['mean']:.3f} ({r['low']:.3f} – {r['high']:.3f})"
        tokens = 1 if what == "rows 1" else int(what.split()[1])
        units = [f"{1e3 * s:.1f} ms, {tokens / s:.1f} tokens/s" for s in (case["ours_seconds"], case["llama_cpp_seconds"])]
        lines.append(f"| {what} | {units[0]} | {units[1]} | {show(case['llama_cpp_over_ours'])} | "
                     + (f"{show(case['ours_over_one_row'])} | {show(case['llama_cpp_over_one_row'])} |" if curve else "| |"))
        print(lines[-1], flush=True)
    ours.close()
    text = "\n".join(lines) + "\n"
    print("\n" + text)
    if args.out:
        Path(args.out + ".md").write_text(text)
        Path(args.out + ".json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
