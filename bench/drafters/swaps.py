#!/usr/bin/env python3
"""Measures what it costs requests that draft models or heads are swapped beside them, in interleaved pairs on one server.

  swaps.py [--pairs 30] [--max-tokens 256] [--target DIR --draft DIR --heads DIR] [--cases loads,swaps,heads] [--out FILE]

  loads   a copy of the draft model is loaded and unloaded all the time, and drafts for hardly any request
  swaps   the copy takes over and is rolled back, all the time
  heads   two copies of the heads replace each other all the time, on a server without a draft model

A figure is the geometric mean of the ratios of tokens per second with the changes and without, and its 95 % interval. `seconds` is the time
of `tandem drafter load` or `swap-heads`, from the command to its end. Greedy, one stream. Without --target, the models are the embedded
pair and its layer of EAGLE.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import lab  # noqa: E402
from draft_models import rate  # noqa: E402
from lab import harness  # noqa: E402
from prompts import PROMPTS  # noqa: E402

CASES = {"loads": (["load", "copy", "--share", "0.001"], ["unload", "copy"]),
         "swaps": (["load", "copy", "--share", "1"], ["promote"], ["rollback"], ["unload", "copy"]),
         "heads": (["swap-heads", "one"], ["swap-heads", "other"])}


class Changes:
    """Runs the commands of a case over and over, while it is entered."""

    def __init__(self, server, commands):
        self.server, self.commands = server, commands
        self.load_seconds, self.over = [], threading.Event()

    def run(self):
        while not self.over.is_set():
            for command in self.commands:
                begin = time.monotonic()
                done = harness.run_cli("drafter", *command, "--connect", self.server.address)
                assert done.returncode == 0, done.stderr
                if command[0] in ("load", "swap-heads"):
                    self.load_seconds.append(time.monotonic() - begin)

    def __enter__(self):
        self.over.clear()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def measure(server, name, arguments):
    changes = Changes(server, CASES[name])

    def quiet(pair):
        return rate(server, PROMPTS[pair % len(PROMPTS)], dict(temperature=0, max_tokens=arguments.max_tokens))

    def changing(pair):
        with changes:
            return quiet(pair)

    figure = {"case": name, **lab.paired(changing, quiet, arguments.pairs), "loads": len(changes.load_seconds),
              "seconds": statistics.median(changes.load_seconds)}
    print(f"{name:6} {figure['mean']:.3f} ({figure['low']:.3f}-{figure['high']:.3f}), {figure['pairs']} pairs; {figure['loads']} loads, "
          f"{1e3 * figure['seconds']:.0f} ms each", flush=True)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30, help="pairs of each figure (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=256, help="tokens of a run (default: %(default)s)")
    parser.add_argument("--target", default=harness.EMBEDDED_TARGET)
    parser.add_argument("--draft", default=harness.EMBEDDED_DRAFT)
    parser.add_argument("--heads", type=pathlib.Path, default=harness.EMBEDDED_TARGET.parent / "eagle", help="heads of the case heads")
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES), help="cases to measure (default: all)")
    parser.add_argument("--out", type=pathlib.Path, help="also write the figures to this JSON file")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"--cases: there is no {', '.join(sorted(unknown))}, allowed: {', '.join(CASES)}")
    report = {"machine": lab.machine(), "max_tokens": arguments.max_tokens, "figures": []}
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        folder = pathlib.Path(folder)
        shutil.copytree(arguments.draft, folder / "drafts" / "copy")
        for copy in ("one", "other"):
            shutil.copytree(arguments.heads, folder / "heads" / copy)
        servers = {"heads": dict(drafter="none", heads=arguments.heads, heads_folder=folder / "heads")}
        for case in arguments.cases:
            options = servers.get(case, dict(draft=arguments.draft, draft_folder=folder / "drafts"))
            server = harness.Server(folder, target=arguments.target, **options)
            try:
                report["figures"].append(measure(server, case, arguments))
            finally:
                server.stop()
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
