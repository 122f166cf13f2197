#!/usr/bin/env python3
"""Compares the choice among all drafters with each single drafter, on workloads that different drafters are best at.

  choice.py [--rounds 20] [--max-tokens 160] [--workloads NAME,...] [--out bench/results/choice.json]

  repeating      greedy, after a prompt of JSON-like records
  editing        the client predicts the output, with every twelfth token replaced
  tales          greedy tales
  sampled        tales sampled at temperature 1
  mixed          four streams at once, one of each of the workloads above
  queue          sixteen requests, four of each of the workloads above, four at a time
  random         greedy, target and draft model with random weights, which never agree
  mixture        one request of each of the first four workloads after the other

A round runs plain decoding, the choice and each drafter once, in an order that rotates. A figure is the geometric mean over all rounds of
the speed over plain decoding in the same round. The speed of several streams is their tokens over the time until the last one ends. The
layer of EAGLE belongs to the embedded target, so `eagle` is left out where weights are random. The best single drafter is the one with
the largest mean. `choice over best` is the mean ratio of the choice to it, in the same rounds, with its 95 % interval.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import lab  # noqa: E402
import lookups  # noqa: E402
from lab import harness  # noqa: E402

PLAIN = dict(draft_length=0)
CHOICE = {}


def requests_of(server, max_tokens):
    """Returns {workload: [[(prompt, options)] for each of its rounds in turn]}."""
    greedy = dict(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    edits, _ = lookups.workloads(server, max_tokens)["edits"]
    edits = [(prompt, dict(options, reproducible=True)) for prompt, options in edits]
    of_round = {
        "repeating": [[(lookups.RECORDS, greedy)]],
        "editing": [[edit] for edit in edits],
        "tales": [[(prompt, greedy)] for prompt in lookups.TALES],
        "sampled": [[(prompt, dict(greedy, temperature=1.0))] for prompt in lookups.TALES],
    }
    of_round["mixed"] = of_round["mixture"] = [[requests[i % len(requests)][0] for requests in list(of_round.values())[:4]]
                                               for i in range(len(lookups.TALES))]
    of_round["queue"] = [[request for i in range(4) for request in of_round["mixed"][(turn + i) % len(lookups.TALES)]]
                         for turn in range(len(lookups.TALES))]
    return of_round


def speed(server, requests, options, concurrency, seed):
    """Returns decoded tokens per second: of the whole time with several streams, and of the time after the first token otherwise."""
    seeded = [(prompt, {"seed": seed, "reproducible": False, **given, **options}) for prompt, given in requests]
    begun = time.monotonic()
    outputs = server.generate_all(seeded, concurrency)
    seconds = time.monotonic() - begun
    if concurrency == 1:
        seconds = sum(output.completion.timings.decode_seconds for output in outputs)
    return sum(output.completion.usage.completion_tokens - 1 for output in outputs) / seconds


def measure(server, workload, requests, drafters, rounds):
    cases = {"plain": PLAIN, "choice": CHOICE, **{drafter: dict(drafter=drafter) for drafter in drafters}}
    names = list(cases)
    speeds = {name: [] for name in names}
    concurrency = 4 if workload in ("mixed", "queue") else 1
    for turn in range(-1, rounds):
        for i in range(len(names)):
            name = names[(i + turn) % len(names)]
            value = speed(server, requests[turn % len(requests)], cases[name], concurrency, seed=turn + 2)
            if turn >= 0:
                speeds[name].append(value)

    def ratio(name, other):
        return lab.mean_ratio([a / b for a, b in zip(speeds[name], speeds[other])])

    over_plain = {name: ratio(name, "plain") for name in names if name != "plain"}
    best = max(drafters, key=lambda name: over_plain[name]["mean"])
    return {"workload": workload, "over_plain": over_plain, "best": best, "choice_over_best": ratio("choice", best)}


def show(figure):
    def text(ratio):
        return f"{ratio['mean']:.2f}"

    singles = ", ".join(f"{name} {text(ratio)}" for name, ratio in figure["over_plain"].items() if name != "choice")
    choice, over_best = figure["over_plain"]["choice"], figure["choice_over_best"]
    print(f"{figure['workload']:10} choice {choice['mean']:.3f} ({choice['low']:.3f}-{choice['high']:.3f}) of plain; {singles}; "
          f"over the best, {figure['best']}: {over_best['mean']:.3f} ({over_best['low']:.3f}-{over_best['high']:.3f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each workload (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=160, help="tokens of a run (default: %(default)s)")
    parser.add_argument("--workloads", default="repeating,editing,tales,sampled,mixed,queue,random,mixture",
                        help="those that are measured (default: %(default)s)")
    parser.add_argument("--drafters", default="model,prediction,suffix,ngram,recycling,eagle",
                        help="those that the server may use by itself (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, help="also write the figures to this JSON file")
    arguments = parser.parse_args()
    wanted, drafters = arguments.workloads.split(","), arguments.drafters.split(",")
    report = {"machine": lab.machine(), "max_tokens": arguments.max_tokens, "drafters": drafters, "figures": []}
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        folder = pathlib.Path(folder)
        pairs = {}
        if set(wanted) - {"random"}:
            pairs["tales"] = dict(target=harness.EMBEDDED_TARGET, draft=harness.EMBEDDED_DRAFT)
        if "random" in wanted:
            models = harness.Models(folder / "models")
            shape = dict(untied=True, tokenizer_from=harness.EMBEDDED_TARGET, vocabulary_size=4096, max_positions=1024)
            pairs["random"] = dict(target=models.random(**shape, hidden_size=384, intermediate_size=1024, layers=6, seed=1),
                                   draft=models.random(**shape, hidden_size=64, intermediate_size=256, layers=1, seed=2))
        for name, pair in pairs.items():
            of_pair = [drafter for drafter in drafters if name == "tales" or drafter != "eagle"]
            place = folder / name
            place.mkdir()
            heads = dict(heads=harness.EMBEDDED_TARGET.parent / "eagle") if "eagle" in of_pair else {}
            server = harness.Server(place, **pair, **heads, drafters=",".join(of_pair), max_slots=4)
            try:
                harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
                requests = requests_of(server, arguments.max_tokens)
                requests["random"] = requests["tales"]
                for workload in wanted:
                    if (workload == "random") == (name == "random"):
                        report["figures"].append(measure(server, workload, requests[workload], of_pair, arguments.rounds))
                        show(report["figures"][-1])
            finally:
                server.stop()
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
