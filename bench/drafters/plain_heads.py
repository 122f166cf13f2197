#!/usr/bin/env python3
"""Measures what heads cost a server that decodes plainly.

  plain_heads.py [--pairs 60] [--max-tokens 120] [--out bench/results/plain_heads.json]

Two servers of the embedded target run side by side, one with heads and one without, and nobody asks for drafts. Greedy tales are decoded
in interleaved pairs. A figure is the geometric mean of the ratios of tokens per second, and its 95 % interval. `none` compares two equal
servers: it shows what the place of a process in memory makes of such a figure.
"""

import argparse
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import lab  # noqa: E402
import lookups  # noqa: E402
from lab import harness  # noqa: E402

KINDS = ("none", "medusa", "blockwise", "eagle", "layer_skip", "pass")


def server_with(folder, kind):
    folder.mkdir()
    heads = {} if kind == "none" else dict(heads=harness.EMBEDDED_TARGET.parent / kind)
    return harness.Server(folder, target=harness.EMBEDDED_TARGET, drafter="none", **heads)


def speed_of(server, max_tokens):
    options = dict(temperature=0, max_tokens=max_tokens, ignore_eos=True, draft_length=0)
    return lambda pair: lookups.rate(server, lookups.TALES[pair % len(lookups.TALES)], options)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60, help="pairs of each figure (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=120, help="tokens of a run (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, help="also write the figures to this JSON file")
    arguments = parser.parse_args()
    report = {"machine": lab.machine(), "max_tokens": arguments.max_tokens, "figures": []}
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        folder = pathlib.Path(folder)
        without = server_with(folder / "without", "none")
        try:
            for kind in KINDS:
                server = server_with(folder / kind, kind)
                try:
                    ratio = lab.paired(speed_of(server, arguments.max_tokens), speed_of(without, arguments.max_tokens), arguments.pairs)
                finally:
                    server.stop()
                report["figures"].append({"heads": kind, **ratio})
                print(f"{kind:10} {ratio['mean']:.3f} ({ratio['low']:.3f}-{ratio['high']:.3f}), {ratio['pairs']} pairs", flush=True)
        finally:
            without.stop()
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
