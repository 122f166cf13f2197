"""Tests that the output is that of plain decoding for every drafter, in drafts of every shape, over every transport, in every batch.

Rows that cover all pairs of these factors run by default. With TANDEM_FULL_PRODUCT=1, all rows run. A row is repeated until its drafter
has drafted, because the shape `automatic` leaves it to the server when that pays, and because retrieval runs beside the rounds.

No log-probs travel for greedy and reproducible drafts, so a transport carries rows only for the sampled neighbors. That sampled output is
exact over each transport is tested in test_sampling.py.
"""

import collections
import itertools
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

import harness
from covering_array import covering_array, full_product, pairs_of
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb

HEADS = ("medusa", "blockwise", "eagle", "layer_skip", "pass")
LOOKUPS = ("ngram", "suffix", "retrieval", "prediction", "recycling")
FACTORS = {
    "drafter": ["model", "several models", *LOOKUPS, *HEADS, "all, automatic"],
    "shape": ["chain", "tree", "automatic"],
    "batch": ["alone", "of the same", "mixed"],
    "transport": ["shm", "inline"],
    "mode": ["greedy", "reproducible"],
}
ROWS = full_product(FACTORS) if os.environ.get("TANDEM_FULL_PRODUCT", "0") == "1" else covering_array(FACTORS)

SHAPES = {"chain": dict(draft_length=4), "tree": dict(draft_length=4, max_tree_nodes=12), "automatic": {}}
DRAW_CHAINS_ONLY = ("ngram", "prediction")
MODES = {"greedy": dict(temperature=0), "reproducible": dict(seed=7)}
SAMPLED = dict(temperature=1.0, reproducible=False)
MAX_TOKENS = 32
# Four of the texts repeat, so that lookups find something from the first round on.
REPEATING = ["The king said: bring me the golden bird. The queen said: bring me the golden bird. The fox said:",
             "The wolf ran into the wood. The fox ran into the wood. The hare ran into",
             "One day the cat came home, and the dog came home, and the cock came home, and",
             "Mirror, mirror on the wall, who is the fairest of them all? Mirror, mirror on"]
TEXTS = [text for both in zip(REPEATING, PROMPTS) for text in both]


def request_of(text, mode, **options):
    return text, dict(max_tokens=MAX_TOKENS, ignore_eos=True, **MODES[mode], **options)


@pytest.fixture(scope="module")
def plain(servers):
    """What plain decoding answers: {(text, mode): Output}."""
    server = servers(target=harness.EMBEDDED_TARGET, drafter="none")
    keys = list(itertools.product(TEXTS, MODES))
    outputs = server.generate_all([request_of(*key, draft_length=0) for key in keys], 1)
    assert {source for output in outputs for source in output.sources} == {pb.TOKEN_SOURCE_PLAIN}
    assert len({output.bytes for output in outputs}) == len(keys), "texts and modes must tell paths apart"
    return dict(zip(keys, outputs))


@pytest.fixture(scope="module")
def corpus(servers, plain, tmp_path_factory):
    """An index of the right answers, and of others that begin like them and go on differently."""
    folder = tmp_path_factory.mktemp("corpus")
    server = servers(target=harness.EMBEDDED_TARGET, drafter="none")
    starts = []
    for i, ((text, _), output) in enumerate(plain.items()):
        (folder / str(i)).write_text(text + output.text)
        starts += [(text + output.text[:cut], dict(max_tokens=8, temperature=1.2, seed=cut)) for cut in (8, 24, 48)]
    for i, ((start, _), output) in enumerate(zip(starts, server.generate_all(starts, 4))):
        (folder / f"other{i}").write_text(start + output.text)
    index = tmp_path_factory.mktemp("index") / "index"
    built = harness.run_cli("index", "build", str(folder), "--target", str(harness.EMBEDDED_TARGET), "--output", str(index))
    assert built.returncode == 0, built.stderr
    return index


@pytest.fixture(scope="module")
def second_draft(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drafts") / "second"
    shutil.copytree(harness.TALES_DRAFT, folder)
    return folder


@pytest.fixture
def server_of(servers, corpus, second_draft):
    """Returns the server of a row. Rows that need the same heads, draft models and transport share it. Each server has all the lookups."""

    def get(row):
        heads = row["drafter"] if row["drafter"] in HEADS else "medusa"
        drafts = [harness.EMBEDDED_DRAFT, *([second_draft] if row["drafter"] in ("several models", "all, automatic") else [])]
        listed = ",".join(("model", *LOOKUPS, heads))
        server = servers(target=harness.EMBEDDED_TARGET, draft=",".join(map(str, drafts)), max_slots=8, retrieval=corpus,
                         heads=harness.EMBEDDED_TARGET.parent / heads, transport=row["transport"], threads=1,
                         environment={"TANDEM_DRAFTERS": listed})
        harness.wait_until(lambda: [model.attached for model in server.info().draft_models] == [True] * len(drafts), 30, "all drafters")
        harness.wait_until(lambda: server.info().ring_transport == row["transport"], 30, f"there is a ring of {row['transport']}")
        return server

    return get


def predicted(answer):
    """Returns a prediction that is wrong in places."""
    ids = [token - 1 if i % 6 == 0 and token > 0 else token for i, token in enumerate(answer.token_ids, start=1)]
    return pb.Prediction(token_ids=pb.TokenIds(ids=ids))


def options_of(row, server, i, answer):
    """Returns how request number `i` of a row drafts."""
    drafter = row["drafter"]
    options = dict(SHAPES[row["shape"]])
    if drafter == "several models":  # any of them, or one by its name
        options["drafter"] = ["model", *(model.name for model in server.info().draft_models)][i % 3]
    elif drafter != "all, automatic":
        options["drafter"] = drafter
    if drafter == "prediction" or drafter == "all, automatic" and i % 2 == 0:
        options["prediction"] = predicted(answer)
    return options


def neighbors():
    """Returns requests that take other paths than those of a row, and what each must answer, if that is known."""
    return [(request_of(TEXTS[1], "greedy", draft_length=0), (TEXTS[1], "greedy")),
            ((TEXTS[2], dict(max_tokens=40, draft_length=0, **SAMPLED)), None),
            ((TEXTS[3], dict(max_tokens=40, draft_length=3, drafter="model", **SAMPLED)), None),
            (request_of(TEXTS[4], "reproducible", **SHAPES["tree"], drafter="suffix"), (TEXTS[4], "reproducible")),
            ((TEXTS[5], dict(max_tokens=40, presence_penalty=0.5, **SHAPES["tree"], drafter="model", **SAMPLED)), None)]


class Tally:
    """What the drafter of some outputs did."""

    def __init__(self):
        self.drafted = self.accepted = self.trees = self.changes = 0
        self.names = collections.Counter()
        self.models = collections.Counter()

    def add(self, output):
        stats = output.completion.speculation
        self.drafted += stats.num_draft_tokens
        self.accepted += stats.num_accepted_tokens
        self.trees += stats.num_trees
        self.changes += len({used.name for used in stats.drafters}) > 1
        for used in stats.drafters:
            self.names[used.name] += used.num_draft_tokens
            self.models[used.model] += used.num_draft_tokens

    def lacks(self, row):
        """Returns what the drafter of this row has not done yet."""
        if self.drafted == 0:
            return "it must draft"
        if row["shape"] == "tree" and self.trees == 0 and row["drafter"] not in DRAW_CHAINS_ONLY:
            return "it must draw trees"
        if row["drafter"] == "all, automatic" and self.changes == 0:
            return "the drafter must change in mid-stream"
        return ""

    def check(self, row):
        """Checks that nothing else drafted."""
        if row["shape"] == "chain" or row["drafter"] in DRAW_CHAINS_ONLY:
            assert self.trees == 0
        if row["drafter"] != "all, automatic":
            assert set(self.names) == {"model" if "model" in row["drafter"] else row["drafter"]}
        assert 0 <= self.accepted <= self.drafted


def run(row, server, plain, total, first):
    """Runs the requests of a row once, from text number `first` on, compares each text, and counts into `total`."""
    num_tested = {"alone": 3, "of the same": 8, "mixed": 3}[row["batch"]]
    wanted = [(TEXTS[(first + i) % len(TEXTS)], row["mode"]) for i in range(num_tested)]
    requests = [(request_of(*key, **options_of(row, server, i, plain[key])), key) for i, key in enumerate(wanted)]
    if row["batch"] == "mixed":
        requests += neighbors()
    outputs = server.generate_all([request for request, _ in requests], 1 if row["batch"] == "alone" else 8)
    for i, ((request, key), output) in enumerate(zip(requests, outputs)):
        if key is not None:
            assert output.bytes == plain[key].bytes, (row, request)
        if i < num_tested:
            total.add(output)


@pytest.mark.parametrize("drafter", FACTORS["drafter"])
def test_output_is_that_of_plain_decoding(server_of, plain, drafter):
    drafted = accepted = 0
    models = set()
    for row in ROWS:
        if row["drafter"] != drafter:
            continue
        server, tally, deadline = server_of(row), Tally(), time.monotonic() + 60
        for first in itertools.count():
            run(row, server, plain, tally, first)
            if not tally.lacks(row):
                break
            assert time.monotonic() < deadline, (row, tally.lacks(row))
        tally.check(row)
        drafted += tally.drafted
        accepted += tally.accepted
        models |= {model for model, number in tally.models.items() if number > 0}
    assert 0 < accepted < drafted, "tokens must be kept, and others not"
    if drafter == "several models":
        assert len(models) == 2, "each of the models must draft"


def test_the_rows_cover_every_pair_of_values():
    rows = covering_array(FACTORS)
    found = set().union(*map(pairs_of, rows))
    for (first, of_first), (second, of_second) in itertools.combinations(FACTORS.items(), 2):
        for one, other in itertools.product(of_first, of_second):
            assert ((first, one), (second, other)) in found, f"{first} {one}, {second} {other}"
    sizes = sorted(map(len, FACTORS.values()))
    # No array is smaller than the product of the two largest factors.
    assert sizes[-1] * sizes[-2] <= len(rows) <= sizes[-1] * sizes[-2] * 1.2 < len(full_product(FACTORS)) / 5


def test_each_run_has_the_same_rows():
    """Python orders sets by hashes, which differ from one process to the next."""
    program = "import json, covering_array, sys; print(json.dumps(covering_array.covering_array(json.load(sys.stdin))))"
    folder = os.path.dirname(os.path.abspath(__file__))
    for seed in ("1", "2"):
        environment = dict(os.environ, PYTHONHASHSEED=seed, PYTHONPATH=folder, PYTHONDONTWRITEBYTECODE="1")
        ran = subprocess.run([sys.executable, "-c", program], input=json.dumps(FACTORS), env=environment, capture_output=True, text=True,
                             timeout=60, check=True)
        assert json.loads(ran.stdout) == covering_array(FACTORS)
