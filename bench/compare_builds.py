#!/usr/bin/env python3
"""Compares two builds of Tandem, in interleaved pairs on one machine: compare_builds.py OLD/bin NEW/bin [--only NAME,...]

Each build serves the same models. One client program, that of NEW, loads both servers in turn with the same requests. The placement of
a process in memory changes its speed by some percent for as long as it lives. Therefore both servers are started anew for each block of
pairs, and a block counts as one sample. Each figure is the geometric mean of the blocks' ratios NEW / OLD and its 95 % interval. A
ratio of speeds above 1, or of times below 1, is a gain.

  round_greedy    tokens/s of one stream, embedded pair, greedy, K = 4
  round_sampled   the same with plain sampling
  clients_32      tokens/s of 32 streams, embedded pair, drafting chosen by the server
  decode_1b       tokens/s of one stream, a target in the shape of Llama-3.2-1B, no drafting
  drafts_1b       tokens/s of one stream, the same with a drafter of 154 MB, K = 4
  prefix_hit      seconds to the first token of a prompt whose rows are in the prefix cache
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

import lab
from lab import harness


@dataclasses.dataclass(frozen=True)
class Figure:
    name: str
    blocks: int
    pairs: int  # pairs of a block
    load: tuple  # options of `tandem bench serve`
    value: str = "tokens_per_second"
    large: bool = False  # whether the models have the costs of a 1B model


ONE = ("--clients", 1, "--drafting", "on", "--draft-length", 4, "--output-lengths", "fixed:192")
LARGE = ("--clients", 1, "--requests", 1, "--output-lengths", "fixed:24")
FIGURES = [
    Figure("round_greedy", 14, 6, (*ONE, "--requests", 3)),
    Figure("round_sampled", 14, 6, (*ONE, "--requests", 3, "--modes", "sampled")),
    Figure("clients_32", 14, 3, ("--clients", 32, "--requests", 2, "--drafting", "auto", "--output-lengths", "fixed:64")),
    Figure("decode_1b", 10, 2, (*LARGE, "--drafting", "off"), large=True),
    Figure("drafts_1b", 10, 2, (*LARGE, "--drafting", "on", "--draft-length", 4), large=True),
    Figure("prefix_hit", 14, 6, ("--clients", 1, "--requests", 10, "--drafting", "off", "--prompt-lengths", "fixed:400",
                               "--shared-prefix", 390, "--output-lengths", "fixed:1"), value="time_to_first_token_seconds"),
]


def client(tandem, address, figure, seed):
    """One run of the load; the figure's value."""
    with tempfile.TemporaryDirectory(prefix="tandem-compare-") as folder:
        out = pathlib.Path(folder) / "out.json"
        command = [tandem, "bench", "serve", "--connect", address, "--pairs", 1, "--seed", seed, "--json", out, *figure.load]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
        cell, = json.loads(out.read_text())["rows"]
        value = cell[figure.value]
        return value["p50"] if isinstance(value, dict) else value


def compare_block(figure, old, new, models, folder, new_first):
    """The mean ratio of a block. The server that starts second is slower by some percent, so the two take turns."""
    servers = {}
    for name, binaries in (("old", old), ("new", new))[::-1 if new_first else 1]:
        (folder / name).mkdir(parents=True)
        servers[name] = harness.Server(folder / name, executables=binaries, listen=f"unix:{folder / name}/socket", **models)
    try:
        def measure(name):
            return lambda pair: client(new / "tandem", servers[name].address, figure, 1000 + pair)
        return lab.paired(measure("new"), measure("old"), figure.pairs)["mean"]
    finally:
        for server in servers.values():
            server.stop()


def compare(figure, old, new, models, blocks, folder):
    return lab.mean_ratio([compare_block(figure, old, new, models, folder / str(block), block % 2 == 1) for block in range(blocks)])


def large_models(inflate_model, folder):
    """The embedded pair in large shapes: what is added is computed in full and contributes nothing."""
    target, draft = folder / "target-1b", folder / "draft-154mb"
    for small, made, options in ((harness.TALES_TARGET, target, ["--shape", "1b"]),
                                 (harness.TALES_DRAFT, draft, ["--shape", "own", "--vocab-size", "128256", "--hidden-size", "512",
                                                               "--intermediate-size", "1536", "--layers", "4", "--heads", "4",
                                                               "--kv-heads", "2", "--head-dim", "128"])):
        if not made.exists():
            subprocess.run([inflate_model, small, made, *options], check=True, capture_output=True)
    return {"target": target, "draft": draft}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path, help="folder with the executables of the old build")
    parser.add_argument("new", type=pathlib.Path, help="folder with those of the new build, and inflate_model for the figures of 1B")
    parser.add_argument("--only", default="", metavar="NAME,...", help="figures to measure (all)")
    parser.add_argument("--blocks", type=int, help="blocks of each figure, at least 2 (10 or 14)")
    parser.add_argument("--models", type=pathlib.Path, help="folder that keeps the large models (a temporary one)")
    parser.add_argument("--out", type=pathlib.Path, help="writes the figures there as JSON")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else [figure.name for figure in FIGURES]
    unknown = set(names) - {figure.name for figure in FIGURES}
    if unknown:
        parser.error(f"--only: {', '.join(sorted(unknown))}: allowed: {', '.join(figure.name for figure in FIGURES)}")
    results = {"machine": lab.machine(), "figures": {}}
    with tempfile.TemporaryDirectory(prefix="tandem-compare-") as folder:
        folder = pathlib.Path(folder)
        for figure in FIGURES:
            if figure.name not in names:
                continue
            models = {}
            if figure.large:
                kept = arguments.models or folder
                kept.mkdir(parents=True, exist_ok=True)
                models = large_models(arguments.new / "inflate_model", kept)
            found = compare(figure, arguments.old, arguments.new, models, arguments.blocks or figure.blocks, folder / figure.name)
            results["figures"][figure.name] = found
            print(f"{figure.name}: {found['mean']:.3f} ({found['low']:.3f}-{found['high']:.3f}), "
                  f"{found['pairs']} blocks of {figure.pairs} pairs", flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
