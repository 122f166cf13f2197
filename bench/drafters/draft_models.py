#!/usr/bin/env python3
"""Measures the draft worker and several draft models, in interleaved pairs of two servers on one machine, one stream.

  draft_models.py [--pairs 40] [--max-tokens 256] [--target DIR --draft DIR] [--out FILE]

  guesses   a draft worker that guesses what its model will draw, over one that does not (--guess-drafts)
  second    a server with a second draft model, whose weights are random, over the server with one
  first     the same, and the random one is listed first

Each figure is the geometric mean of the ratios of tokens per second, and its 95 % interval. Sampled texts of two servers differ where their
drafts have other keys. Without --target, the models are the embedded pair.
"""

import argparse
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import lab  # noqa: E402
from lab import harness  # noqa: E402
from prompts import PROMPTS  # noqa: E402

MODES = {"greedy": dict(temperature=0), "sampled": dict(temperature=1.0, reproducible=False)}


def rate(server, prompt, options):
    completion = server.generate(prompt, ignore_eos=True, **options).completion
    return (completion.usage.completion_tokens - 1) / completion.timings.decode_seconds


def compare(name, server, base, arguments):
    figures = []
    for mode, options in MODES.items():
        def once(of):
            return lambda pair: rate(of, PROMPTS[pair % len(PROMPTS)], {**options, "max_tokens": arguments.max_tokens, "seed": pair + 1})

        figure = {"case": name, "mode": mode, **lab.paired(once(server), once(base), arguments.pairs)}
        print(f"{name:8} {mode:8} {figure['mean']:.3f} ({figure['low']:.3f}-{figure['high']:.3f}), {figure['pairs']} pairs", flush=True)
        figures.append(figure)
    return figures


def measure(folder, arguments):
    def serve(draft, **options):
        own = folder / f"server{sum(1 for _ in folder.iterdir())}"
        own.mkdir()
        server = harness.Server(own, target=arguments.target, draft=draft, max_slots=4, **options)
        count = str(draft).count(",") + 1
        harness.wait_until(lambda: sum(model.attached for model in server.info().draft_models) == count, 60, "the drafters are attached")
        return server

    draft = arguments.draft
    noise = harness.Models(folder).random(vocabulary_size=4096, hidden_size=128, layers=2, dtype="bf16", max_positions=1024, seed=7,
                                          tokenizer_from=draft)
    base = serve(draft)
    figures = []
    for name, drafts, options in (("guesses", draft, {"guess_drafts": "off"}), ("second", f"{draft},{noise}", {}),
                                  ("first", f"{noise},{draft}", {})):
        other = serve(drafts, **options)
        figures += compare(name, *((base, other) if name == "guesses" else (other, base)), arguments)
        other.stop()
    base.stop()
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--target", default=harness.EMBEDDED_TARGET)
    parser.add_argument("--draft", default=harness.EMBEDDED_DRAFT)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        figures = measure(pathlib.Path(folder), arguments)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"max_tokens": arguments.max_tokens, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
