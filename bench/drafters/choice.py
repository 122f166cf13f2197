#!/usr/bin/env python3
"""Compares the choice among all drafters with each single drafter, on workloads that different drafters are best at.

  choice.py [--rounds 20] [--warm-up 8] [--max-tokens 160] [--shape embedded|1b] [--workloads NAME,...] [--alone NAME,...]
            [--out bench/results/choice.json]

  repeating      greedy, after a prompt of JSON-like records
  editing        the client predicts the output, with every twelfth token replaced
  tales          greedy tales
  sampled        tales sampled at temperature 1
  mixed          four streams at once, one of each of the workloads above
  queue          sixteen requests, four of each of the workloads above, four at a time
  random         greedy, target and draft model with random weights, which never agree
  mixture        one request of each of the first four workloads after the other

A round runs plain decoding, the choice and each drafter once, in an order that rotates. A figure is the geometric mean over all rounds of
the speed over plain decoding in the same round, after some rounds in which the server learns. The speed of several streams is their
tokens over the time until the last one ends. `each stream` is the geometric mean over the streams of the speed of each by itself. The
layer of EAGLE belongs to the embedded target, so `eagle` is left out where weights are random. The best single drafter is the one with
the largest mean. `choice over best` is the mean ratio of the choice to it, in the same rounds, with its 95 % interval. With --shape 1b, the
models are the embedded ones in the shape of Llama-3.2-1B (inflate_model).
"""

import argparse
import json
import pathlib
import statistics
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
    """Returns decoded tokens per second, of all streams together and of each stream (the geometric mean): of the whole time with several
    streams, and of the time after the first token otherwise."""
    seeded = [(prompt, {"seed": seed, "reproducible": False, **given, **options}) for prompt, given in requests]
    begun = time.monotonic()
    completions = [output.completion for output in server.generate_all(seeded, concurrency)]
    seconds = time.monotonic() - begun
    if concurrency == 1:
        seconds = sum(completion.timings.decode_seconds for completion in completions)
    tokens = [completion.usage.completion_tokens - 1 for completion in completions]
    each = statistics.geometric_mean(num / completion.timings.decode_seconds for num, completion in zip(tokens, completions))
    return sum(tokens) / seconds, each


def measure(server, workload, requests, drafters, rounds, warm_up):
    cases = {"plain": PLAIN, "choice": CHOICE, **{drafter: dict(drafter=drafter) for drafter in drafters}}
    names = list(cases)
    speeds = {name: [] for name in names}
    concurrency = 4 if workload in ("mixed", "queue") else 1
    for turn in range(-warm_up, rounds):
        for i in range(len(names)):
            name = names[(i + turn) % len(names)]
            values = speed(server, requests[turn % len(requests)], cases[name], concurrency, seed=turn + 2 + warm_up)
            if turn >= 0:
                speeds[name].append(values)

    def ratio(name, other, of_each=False):
        return lab.mean_ratio([a[of_each] / b[of_each] for a, b in zip(speeds[name], speeds[other])])

    over_plain = {name: ratio(name, "plain") for name in names if name != "plain"}
    best = max(drafters, key=lambda name: over_plain[name]["mean"])
    figure = {"workload": workload, "over_plain": over_plain, "best": best, "choice_over_best": ratio("choice", best)}
    if concurrency > 1:
        figure["each_stream_over_plain"] = {name: ratio(name, "plain", of_each=True) for name in names if name != "plain"}
    return figure


def show(figure):
    def text(ratio):
        return f"{ratio['mean']:.2f}"

    singles = ", ".join(f"{name} {text(ratio)}" for name, ratio in figure["over_plain"].items() if name != "choice")
    choice, over_best = figure["over_plain"]["choice"], figure["choice_over_best"]
    print(f"{figure['workload']:10} choice {choice['mean']:.3f} ({choice['low']:.3f}-{choice['high']:.3f}) of plain; {singles}; "
          f"over the best, {figure['best']}: {over_best['mean']:.3f} ({over_best['low']:.3f}-{over_best['high']:.3f})", flush=True)
    of_each = figure.get("each_stream_over_plain", {})
    if of_each:
        print(f"{'':10} each stream: " + ", ".join(f"{name} {text(ratio)}" for name, ratio in of_each.items()), flush=True)


def embedded_pair(shape):
    """Returns the models of a server, and the folder of its layer of EAGLE."""
    if shape == "1b":
        return dict(target=lookups.inflated("target"), draft=lookups.inflated("draft")), lookups.inflated("eagle")
    return dict(target=harness.EMBEDDED_TARGET, draft=harness.EMBEDDED_DRAFT), harness.EMBEDDED_TARGET.parent / "eagle"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each workload (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=8, help="rounds before them that are not measured (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=160, help="tokens of a run (default: %(default)s)")
    parser.add_argument("--workloads", default="repeating,editing,tales,sampled,mixed,queue,random,mixture",
                        help="those that are measured (default: %(default)s)")
    parser.add_argument("--shape", choices=["embedded", "1b"], default="embedded", help="the models (default: %(default)s)")
    parser.add_argument("--alone", default="", help="the drafters that are measured by themselves (default: all)")
    parser.add_argument("--drafters", default="model,prediction,suffix,ngram,recycling,eagle",
                        help="those that the server may use by itself (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, help="also write the figures to this JSON file")
    arguments = parser.parse_args()
    wanted, drafters = arguments.workloads.split(","), arguments.drafters.split(",")
    report = {"machine": lab.machine(), "shape": arguments.shape, "warm_up": arguments.warm_up, "max_tokens": arguments.max_tokens,
              "drafters": drafters, "figures": []}
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        folder = pathlib.Path(folder)
        pairs = {}
        if set(wanted) - {"random"}:
            pairs["tales"], eagle = embedded_pair(arguments.shape)
        if "random" in wanted:
            models = harness.Models(folder / "models")
            shape = dict(untied=True, tokenizer_from=harness.EMBEDDED_TARGET, vocabulary_size=4096, max_positions=1024)
            pairs["random"] = dict(target=models.random(**shape, hidden_size=384, intermediate_size=1024, layers=6, seed=1),
                                   draft=models.random(**shape, hidden_size=64, intermediate_size=256, layers=1, seed=2))
        for name, pair in pairs.items():
            of_pair = [drafter for drafter in drafters if name == "tales" or drafter != "eagle"]
            place = folder / name
            place.mkdir()
            heads = dict(heads=eagle) if "eagle" in of_pair else {}
            server = harness.Server(place, **pair, **heads, drafters=",".join(of_pair), max_slots=4)
            try:
                harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
                requests = requests_of(server, arguments.max_tokens)
                requests["random"] = requests["tales"]
                for workload in wanted:
                    if (workload == "random") == (name == "random"):
                        alone = [drafter for drafter in of_pair if not arguments.alone or drafter in arguments.alone.split(",")]
                        report["figures"].append(measure(server, workload, requests[workload], alone, arguments.rounds,
                                                        arguments.warm_up))
                        show(report["figures"][-1])
            finally:
                server.stop()
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
