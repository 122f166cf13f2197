#!/usr/bin/env python3
"""Measures what lookups gain over plain decoding, in interleaved pairs on one machine, one stream.

  lookups.py [--pairs 20] [--max-tokens 192] [--shape embedded|1b] [--workloads NAME,...] [--trees] [--out bench/results/lookups.json]

  loops      greedy tales: a small model repeats itself                          (suffix, ngram)
  records    greedy, after a prompt of JSON-like records                         (suffix, ngram)
  edits      the client predicts the output, with every twelfth token replaced   (prediction)
  answers    requests that were answered before; the corpus has the answers      (retrieval)
  tales      greedy tales, and tales sampled at temperature 0.7                   (recycling)
  no_match   sampled at temperature 2: hardly anything repeats                   (suffix, ngram, retrieval)

With --trees, drafts that may be trees are compared with chains instead: the speed where the server chooses, and the tokens per pass at the
same number of rows (draft length 8 and at most 8 tokens, or a chain of 8).

  versions   sampled at temperature 0.4; the corpus has eight other answers to each prompt   (retrieval)

Each figure is the geometric mean of the ratios of tokens per second with the drafter and without, and its 95 % interval. The target is the
embedded one, or the same in the shape of Llama-3.2-1B (inflate_model). --activation-precision goes to the server, for both sides of a pair.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import lab  # noqa: E402
from lab import harness  # noqa: E402

from tandem.v1 import generate_pb2 as pb  # noqa: E402

TALES = ["Once upon a time there was a king who had three daughters, and",
         "A fox and a wolf were walking together through the forest when",
         "There was once a poor woodcutter who lived with his wife and"]
RECORDS = "".join('{"name": "%s", "kind": "animal", "legs": 4, "home": "forest"}, ' % name
                  for name in ("fox", "wolf", "bear", "hare", "deer", "goat", "horse", "dog"))


def rate(server, prompt, options):
    output = server.generate(prompt, **options)
    timings = output.completion.timings
    return (output.completion.usage.completion_tokens - 1) / timings.decode_seconds, output


def edited(token_ids):
    chosen = random.Random(1)
    return [chosen.randrange(4000) if i % 12 == 11 else token for i, token in enumerate(token_ids)]


def workloads(server, max_tokens):
    """Returns {name: ([(prompt, options)], drafters)}; `options` may hold a prediction."""
    greedy = dict(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    edits = []
    for prompt in TALES:
        answer = server.generate(prompt, temperature=0.8, seed=3, max_tokens=max_tokens, ignore_eos=True, draft_length=0)
        edits.append((prompt, dict(temperature=0.8, seed=3, max_tokens=max_tokens, ignore_eos=True,
                                   prediction=pb.Prediction(token_ids=pb.TokenIds(ids=edited(answer.token_ids))))))
    answers = [(prompt, {name: value for name, value in options.items() if name != "prediction"}) for prompt, options in edits]
    return {
        "loops": ([(prompt, greedy) for prompt in TALES], ("suffix", "ngram")),
        "records": ([(RECORDS, greedy)], ("suffix", "ngram")),
        "edits": (edits, ("prediction",)),
        "answers": (answers, ("retrieval",)),
        "tales": ([(prompt, greedy) for prompt in TALES], ("recycling",)),
        "sampled": ([(prompt, dict(greedy, temperature=0.7, seed=5)) for prompt in TALES], ("recycling",)),
        "no_match": ([(prompt, dict(greedy, temperature=2.0, seed=5)) for prompt in TALES], ("suffix", "ngram", "retrieval", "recycling")),
    }


def measure(server, requests, drafter, pairs):
    accepted, drafted = 0, 0

    def run(options_of):
        def once(pair):
            nonlocal accepted, drafted
            prompt, options = requests[pair % len(requests)]
            speed, output = rate(server, prompt, {**options, **options_of})
            accepted += output.completion.speculation.num_accepted_tokens
            drafted += output.completion.speculation.num_draft_tokens
            return speed
        return once

    ratio = lab.paired(run(dict(drafter=drafter)), run(dict(draft_length=0)), pairs)
    return {**ratio, "accepted_of_drafted": accepted / drafted if drafted else None}


def tokens_per_pass(server, requests, drafter, nodes):
    tokens = passes = trees = 0
    for prompt, options in requests:
        completion = server.generate(prompt, **{**options, "drafter": drafter, "draft_length": 8, "max_tree_nodes": nodes}).completion
        tokens += completion.usage.completion_tokens - 1
        passes += completion.speculation.num_drafts + completion.speculation.num_plain_rounds
        trees += completion.speculation.num_trees
    return tokens / passes, trees


def measure_trees(server, name, requests, drafter, pairs):
    """Compares drafts that may be trees with chains."""
    def run(options_of):
        def once(pair):
            prompt, options = requests[pair % len(requests)]
            return rate(server, prompt, {**options, "drafter": drafter, **options_of})[0]
        return once

    of_trees, num_trees = tokens_per_pass(server, requests, drafter, 8)
    of_chains, _ = tokens_per_pass(server, requests, drafter, 0)
    figure = {"workload": name, "drafter": drafter, **lab.paired(run({}), run(dict(max_tree_nodes=0)), pairs),
              "tokens_per_pass_of_trees": of_trees, "tokens_per_pass_of_chains": of_chains, "trees": num_trees}
    print(f"{name:9} {drafter:10} {figure['mean']:.3f} ({figure['low']:.3f}-{figure['high']:.3f}) of the speed of chains, "
          f"{figure['pairs']} pairs; with 8 rows {of_trees:.3f} tokens per pass after {of_chains:.3f}, {num_trees} trees", flush=True)
    return figure


def index_of_answers(folder, target, max_tokens, seeds_of_versions):
    """Makes a corpus of the texts that the workload "answers" asks for, and of other answers, and returns its index."""
    (folder / "server").mkdir()
    (folder / "corpus").mkdir()
    server = harness.Server(folder / "server", target=target, drafter="none")
    try:
        for i, prompt in enumerate(TALES):
            answer = server.generate(prompt, temperature=0.8, seed=3, max_tokens=max_tokens, ignore_eos=True, draft_length=0)
            (folder / "corpus" / str(i)).write_text(prompt + answer.text)
            for seed in seeds_of_versions:
                version = server.generate(prompt, temperature=0.4, seed=seed, max_tokens=max_tokens, ignore_eos=True, draft_length=0)
                (folder / "corpus" / f"{i}.{seed}").write_text(prompt + version.text)
    finally:
        server.stop()
    index = folder / "answers.index"
    subprocess.run([lab.BINARY_DIR / "bin" / "tandem", "index", "build", folder / "corpus", "--target", target, "--output", index],
                   check=True, stdout=subprocess.DEVNULL)
    return index


def inflated(name="target"):
    """Returns the embedded target, its draft model or its layer of EAGLE in the shape of Llama-3.2-1B."""
    arguments = {"target": [harness.EMBEDDED_TARGET], "draft": [harness.EMBEDDED_DRAFT],
                 "eagle": [harness.EMBEDDED_TARGET.parent / "eagle", "--heads-of", harness.EMBEDDED_TARGET]}[name]
    made = lab.BINARY_DIR.parent / "inflated" / name
    if not (made / "config.json").exists():
        subprocess.run([lab.BINARY_DIR / "bin" / "inflate_model", arguments[0], made, "--shape", "1b", *arguments[1:]], check=True)
    return made


def figures_of_drafts(server, max_tokens, pairs, wanted):
    figures = []
    for name, (requests, drafters) in workloads(server, max_tokens).items():
        for drafter in drafters if name in wanted else ():
            figure = {"workload": name, "drafter": drafter, **measure(server, requests, drafter, pairs)}
            figures.append(figure)
            share = figure["accepted_of_drafted"]
            accepted = "nothing drafted" if share is None else f"{share:.0%} of drafted accepted"
            print(f"{name:9} {drafter:10} {figure['mean']:.3f} ({figure['low']:.3f}-{figure['high']:.3f}), "
                  f"{figure['pairs']} pairs, {accepted}", flush=True)
    return figures


def figures_of_trees(server, max_tokens, pairs, _):
    of_name = workloads(server, max_tokens)
    versions = [(prompt, dict(temperature=0.4, seed=3, max_tokens=max_tokens, ignore_eos=True)) for prompt in TALES]
    return [measure_trees(server, name, requests, drafter, pairs) for name, requests, drafter in (
        ("loops", of_name["loops"][0], "suffix"), ("records", of_name["records"][0], "suffix"),
        ("answers", of_name["answers"][0], "retrieval"), ("versions", versions, "retrieval"),
        ("tales", of_name["tales"][0], "recycling"), ("sampled", of_name["sampled"][0], "recycling"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20, help="pairs of each figure (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=192, help="tokens of a run (default: %(default)s)")
    parser.add_argument("--shape", choices=["embedded", "1b"], default="embedded", help="the target (default: %(default)s)")
    parser.add_argument("--workloads", default="loops,records,edits,answers,tales,sampled,no_match",
                        help="those that are measured without --trees (default: %(default)s)")
    parser.add_argument("--activation-precision", default="auto", help="of the server (default: %(default)s)")
    parser.add_argument("--trees", action="store_true", help="compare trees with chains instead of drafts with plain decoding")
    parser.add_argument("--out", type=pathlib.Path, help="also write the figures to this JSON file")
    arguments = parser.parse_args()
    target = harness.EMBEDDED_TARGET if arguments.shape == "embedded" else inflated()
    report = {"machine": lab.machine(), "shape": arguments.shape, "max_tokens": arguments.max_tokens,
              "activation_precision": arguments.activation_precision}
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        folder = pathlib.Path(folder)
        index = index_of_answers(folder, target, arguments.max_tokens, range(11, 19) if arguments.trees else ())
        server = harness.Server(folder, target=target, drafter="none", retrieval=index, activation_precision=arguments.activation_precision)
        try:
            all_figures = figures_of_trees if arguments.trees else figures_of_drafts
            report["figures"] = all_figures(server, arguments.max_tokens, arguments.pairs, arguments.workloads.split(","))
        finally:
            server.stop()
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
