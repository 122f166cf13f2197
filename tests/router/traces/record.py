#!/usr/bin/env python3
"""Records the data that the tests of the draft-length controller replay, from the embedded pair on this machine:

  acceptance.txt  mode, temperature, prompt, then one character for each output token. 1 means that the draft token at this
                  place was accepted, and 0 that it was rejected. A bonus token, whose place was not drafted, counts as
                  accepted, because it follows a block that was accepted as a whole.
  costs.txt       draft length, then the seconds of a round of one stream: drafter, verifier, messages, router.

  TANDEM_BINARY_DIR=build/cpu-release build/venv/bin/python tests/router/traces/record.py
"""

import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "system")]
import conftest  # noqa: E402, F401  (makes the stubs)
from harness import Server, pb  # noqa: E402

PROMPTS = [
    "Once upon a time there was a king who had three daughters, and the youngest",
    "A fox and a wolf were walking together along the road when they saw",
    "The prince mounted his horse and rode for three days until he came to a castle",
    "def quicksort(items): return items if len(items) < 2 else",
]
MODES = [
    ("greedy", 0.0, dict(temperature=0)),
    ("reproducible", 1.0, dict(temperature=1, seed=5, reproducible=True)),
    ("sampled", 0.7, dict(temperature=0.7, seed=5, reproducible=False)),
    ("sampled", 1.0, dict(temperature=1, seed=5, reproducible=False)),
    ("sampled", 1.5, dict(temperature=1.5, seed=5, reproducible=False)),
]
TOKENS = 320
DRAFT_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 7, 8)
REPETITIONS = 12
REJECTED = pb.TOKEN_SOURCE_RECOVERED


def record_acceptance(server):
    longest = server.info().max_draft_length
    lines = []
    for mode, temperature, options in MODES:
        for number, prompt in enumerate(PROMPTS):
            output = server.generate(prompt, max_tokens=TOKENS, ignore_eos=True, draft_length=longest, **options)
            # The first token comes from the prompt.
            bits = "".join("0" if source == REJECTED else "1" for source in output.sources[1:])
            lines.append(f"{mode} {temperature} {number} {bits}")
    return lines


def record_costs(server):
    def round_seconds(prompt, draft_length):
        output = server.generate(prompt, temperature=0, max_tokens=96, ignore_eos=True, draft_length=draft_length)
        stats, timings = output.completion.speculation, output.completion.timings
        rounds = stats.num_drafts + stats.num_plain_rounds - 1  # the first token's round is prefill
        return [seconds / rounds for seconds in (timings.draft_seconds, timings.verify_seconds, timings.transfer_seconds,
                                                 timings.router_seconds)]

    round_seconds(PROMPTS[0], 4)  # warms up
    measured = {length: [] for length in DRAFT_LENGTHS}
    for repetition in range(REPETITIONS):
        for length in DRAFT_LENGTHS:
            measured[length].append(round_seconds(PROMPTS[repetition % len(PROMPTS)], length))
    return [f"{length} " + " ".join(f"{statistics.median(column):.6f}" for column in zip(*parts))
            for length, parts in measured.items()]


def main():
    with tempfile.TemporaryDirectory() as folder:
        server = Server(pathlib.Path(folder))
        try:
            (HERE / "acceptance.txt").write_text("\n".join(record_acceptance(server)) + "\n")
            (HERE / "costs.txt").write_text("\n".join(record_costs(server)) + "\n")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
