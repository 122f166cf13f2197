#!/usr/bin/env python3
"""Measures speculation of Tandem and of llama.cpp on the same models and prompts, one stream, greedy, in turn on one machine.

  speculation.py --server LLAMA_SERVER [--rounds 10] [--max-tokens 192] [--shape embedded|1b] [--out bench/results/speculation.json]

  tales     the beginnings of tales; the model repeats itself as small models do
  records   after a prompt of JSON-like records

Each round has another prompt, because ngram-mod of llama.cpp drafts from the outputs of earlier requests, too. It runs every method of both
systems once on it, and the order turns from round to round. A figure is the geometric mean of the tokens per second after the first token;
a speedup is that of the ratios to plain decoding of the same system in the same round, with its 95 % interval. llama.cpp rounds activations
to BF16, and so do we with --activation-precision bf16, where the processor can. bench/llama_cpp/README.md says how to build its server.
"""
import argparse
import json
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(BENCH), str(BENCH / "drafters")]

import compare_builds  # noqa: E402
import lab  # noqa: E402
import lookups  # noqa: E402
import prompts  # noqa: E402
from lab import harness  # noqa: E402



def records(turn):
    animals = ["fox", "wolf", "bear", "hare", "deer", "goat", "horse", "dog", "cat", "cow", "lion", "mouse"]
    chosen = random.Random(turn)
    return "".join('{"name": "%s", "kind": "animal", "legs": 4, "home": "%s"}, ' % (name, chosen.choice(["forest", "house", "field"]))
                   for name in chosen.sample(animals, 8))


WORKLOADS = {"tales": lambda turn: f"{prompts.PROMPTS[turn % len(prompts.PROMPTS)]} {'and' * (turn // len(prompts.PROMPTS))}".strip(),
             "records": records}
# What follows --spec-type and its options. "DRAFT" stands for the draft model's file.
THEIRS = {
    "plain": [],
    "draft model": ["--spec-type", "draft-simple", "-md", "DRAFT"],
    "draft model, at most 4": ["--spec-type", "draft-simple", "-md", "DRAFT", "--spec-draft-n-max", "4"],
    "ngram-simple": ["--spec-type", "ngram-simple"],
    "ngram-simple, 3 of 8": ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "8"],
    "ngram-map-k": ["--spec-type", "ngram-map-k"],
    "ngram-mod": ["--spec-type", "ngram-mod"],
    "ngram-cache": ["--spec-type", "ngram-cache"],
}
OURS = {"plain": dict(draft_length=0), "draft model": dict(drafter="model"), "ngram": dict(drafter="ngram"),
        "suffix": dict(drafter="suffix"), "all of these": {}}


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class LlamaServer:
    def __init__(self, executable, target, draft, options, log):
        self.port = free_port()
        options = [str(draft) if option == "DRAFT" else option for option in options]
        self.process = subprocess.Popen(
            [executable, "-m", target, "--host", "127.0.0.1", "--port", str(self.port), "-c", "1024", "-np", "1", "-t", "2", *options],
            stdout=log, stderr=log)
        for _ in range(600):
            if self.process.poll() is not None:
                raise SystemExit(f"llama-server {' '.join(options)}: ended with {self.process.returncode}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                return
            except OSError:
                time.sleep(0.2)
        raise SystemExit("llama-server does not become ready")

    def run(self, prompt, max_tokens):
        """Returns tokens per second, the text, and (drafted, accepted)."""
        body = dict(prompt=prompt, n_predict=max_tokens, temperature=0, ignore_eos=True, cache_prompt=False)
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            answer = json.load(answer)
        timings = answer["timings"]
        assert timings["predicted_n"] == max_tokens, timings
        return (1e3 * (max_tokens - 1) / timings["predicted_ms"], answer["content"],
                (timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)))

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Tandem:
    def __init__(self, folder, target, draft, precision):
        self.server = harness.Server(folder, target=target, draft=draft, drafters="model,suffix,ngram", threads=2,
                                     activation_precision=precision)

    def run(self, prompt, max_tokens, options):
        speed, output = lookups.rate(self.server, prompt, dict(temperature=0, max_tokens=max_tokens, ignore_eos=True, **options))
        stats = output.completion.speculation
        return speed, output.text, (stats.num_draft_tokens, stats.num_accepted_tokens)

    def stop(self):
        self.server.stop()


def make_gguf(python, folder, out):
    subprocess.run([python, str(pathlib.Path(__file__).with_name("make_gguf.py")), folder, out], check=True)
    return out


def measure(methods, prompt_of, rounds):
    """`methods`: {(system, name): run(prompt)}. Returns {(system, name): figures}."""
    names = list(methods)
    speeds = {name: [] for name in names}
    drafts = {name: [0, 0] for name in names}
    texts = {}
    for turn in range(-1, rounds):  # turn -1 warms up
        prompt = prompt_of(turn)
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            speed, text, counts = methods[name](prompt)
            if texts.setdefault((name[0], prompt), text) != text:
                drafts[name].append("another text than other methods of this system")
            if turn < 0:
                continue
            speeds[name].append(speed)
            for i, count in enumerate(counts):
                drafts[name][i] += count
    figures = {}
    for name in names:
        plain = speeds[(name[0], "plain")]
        drafted, accepted, *notes = drafts[name]
        figures[name] = {"tokens_per_second": statistics.geometric_mean(speeds[name]),
                         "speedup": lab.mean_ratio([a / b for a, b in zip(speeds[name], plain)]),
                         "accepted_of_drafted": accepted / drafted if drafted else None, "notes": sorted(set(notes))}
    return figures, speeds


def print_workload(workload, figures, best):
    print(f"\n### {workload}\n\n| system | method | tokens/s | over its plain decoding | accepted of drafted |\n"
          "| --- | --- | --- | --- | --- |")
    for (system, name), figure in figures.items():
        ratio = figure["speedup"]
        accepted = "–" if figure["accepted_of_drafted"] is None else f"{figure['accepted_of_drafted']:.0%}"
        notes = "; " + "; ".join(figure["notes"]) if figure["notes"] else ""
        speedup = f"{ratio['mean']:.2f}× ({ratio['low']:.2f} – {ratio['high']:.2f})"
        print(f"| {system} | {name} | {figure['tokens_per_second']:.1f} | {speedup} | {accepted}{notes} |")
    print(f"\nbest of Tandem over best of llama.cpp ({best['ours']} over {best['theirs']}): {best['mean']:.2f}× "
          f"({best['low']:.2f} – {best['high']:.2f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="llama.cpp's llama-server")
    parser.add_argument("--converter", default=BENCH.parent / "build" / "llama_cpp" / "bin" / "python",
                        help="a Python with the package gguf (default: build/llama_cpp/bin/python)")
    parser.add_argument("--rounds", type=int, default=10, help="runs of each method on each workload (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=192, help="tokens of a run (default: %(default)s)")
    parser.add_argument("--shape", choices=["embedded", "1b"], default="embedded", help="the target (default: %(default)s)")
    parser.add_argument("--activation-precision", default="exact", help="of Tandem: exact or bf16 (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, help="also write the figures to this JSON file")
    arguments = parser.parse_args()
    target, draft = harness.EMBEDDED_TARGET, harness.EMBEDDED_DRAFT
    if arguments.shape == "1b":
        pair = compare_builds.large_models(lab.BINARY_DIR / "bin" / "inflate_model", lab.BINARY_DIR.parent / "models")
        target, draft = pair["target"], pair["draft"]
    report = {"machine": lab.machine(), "shape": arguments.shape, "max_tokens": arguments.max_tokens, "rounds": arguments.rounds,
              "activation_precision": arguments.activation_precision, "workloads": {}}
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder, open(pathlib.Path(folder) / "llama.log", "w") as log:
        folder = pathlib.Path(folder)
        ggufs = [make_gguf(arguments.converter, model, folder / f"{name}.gguf") for name, model in (("target", target), ("draft", draft))]
        ours = Tandem(folder, target, draft, arguments.activation_precision)
        theirs = {name: LlamaServer(arguments.server, *ggufs, options, log) for name, options in THEIRS.items()}
        methods = {("Tandem", name): lambda prompt, options=options: ours.run(prompt, arguments.max_tokens, options)
                   for name, options in OURS.items()}
        methods |= {("llama.cpp", name): lambda prompt, server=server: server.run(prompt, arguments.max_tokens)
                    for name, server in theirs.items()}
        try:
            for workload, prompt_of in WORKLOADS.items():
                figures, speeds = measure(methods, prompt_of, arguments.rounds)
                fastest = {}
                for name in sorted(figures, key=lambda name: figures[name]["tokens_per_second"]):
                    fastest[name[0]] = name
                best = {"ours": fastest["Tandem"][1], "theirs": fastest["llama.cpp"][1],
                        **lab.mean_ratio([a / b for a, b in zip(speeds[fastest["Tandem"]], speeds[fastest["llama.cpp"]])])}
                print_workload(workload, figures, best)
                report["workloads"][workload] = {"best": best, "methods": [{"system": system, "method": name, **figure}
                                                                           for (system, name), figure in figures.items()]}
        finally:
            for server in (ours, *theirs.values()):
                server.stop()
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
