"""Tests that the sampled output of the whole system has exactly the target's distribution.

The models are tiny and random, so that the distribution of the first three tokens can be enumerated. The target's probabilities are read
through the API (`logprobs`, one token after each prefix, no drafter), transformed here in double precision, and multiplied along each
path. The tests of kernels/sampling make 200,000 draws for each parameter and for planted biases in the algorithm. This test is about the
way through the processes: rows in the ring, rollbacks, catch-up, batches.

The false-alarm rate of each test is 1e-6. With 20,000 draws over about 200 cells, a distribution at a Kullback-Leibler divergence of 0.006
nats is found with a probability of 99 %. A test below shows that the drafter's own distribution, and a mixture with 10 % of it, are found.
"""

import collections
import concurrent.futures
import itertools
import json
import math
import subprocess

import pytest

import harness
from chi_squared import g_test, upper_tail
from tandem.v1 import generate_pb2 as pb

FALSE_ALARM = 1e-6
DRAWS = 20_000
VOCABULARY = 8  # a … f, beginning and end of text
END_OF_TEXT = 7
PROMPT = [6, 0, 1, 2]
TOKENS = 3
# Requests that run at once. The rows of one round are one batch, so with more of them a draw costs less: 64 take 60 % of the processor
# time that 16 take.
AT_ONCE = 64
SHAPE = dict(vocabulary_size=VOCABULARY, hidden_size=16, heads=2, kv_heads=1, head_size=8, intermediate_size=32, layers=1,
             max_positions=64, embedding_scale=0.35)

CONFIGURATIONS = {
    "temperature 1": dict(temperature=1.0),
    # The repetition penalty is left out. It depends on the signs of logits, and the API gives log-probabilities, which differ by a
    # constant.
    "all transforms": dict(temperature=0.8, top_k=6, top_p=0.95, min_p=0.02, presence_penalty=0.3, frequency_penalty=-0.2,
                           logit_bias={3: 0.5, 4: -0.5}, min_tokens=2),
}


def transform(log_probabilities, output, parameters):
    """Returns {token: probability}, in the order of kernels/sampling/transform/transform.h."""
    logits = list(log_probabilities)
    for token, count in collections.Counter(output).items():
        logits[token] -= parameters.get("presence_penalty", 0.0) + count * parameters.get("frequency_penalty", 0.0)
    for token, bias in parameters.get("logit_bias", {}).items():
        logits[token] += bias
    if len(output) < parameters.get("min_tokens", 0):
        logits[END_OF_TEXT] = -math.inf
    logits = [logit / parameters["temperature"] for logit in logits]

    order = sorted(range(VOCABULARY), key=lambda token: (-logits[token], token))
    kept = order[:parameters.get("top_k", VOCABULARY)]
    weights = {token: math.exp(logits[token] - logits[order[0]]) for token in kept}
    total = sum(weights.values())
    nucleus, mass = [], 0.0
    for token in kept:
        if mass >= parameters.get("top_p", 1.0):
            break
        nucleus.append(token)
        mass += weights[token] / total
    largest = weights[order[0]]
    survivors = {token: weights[token] for token in nucleus if weights[token] >= parameters.get("min_p", 0.0) * largest}
    total = sum(survivors.values())
    return {token: weight / total for token, weight in survivors.items()}


def log_probabilities(server, prompt=PROMPT):
    """Returns {prefix: natural logarithms of the model's probabilities}, exactly as the model computes them."""
    prefixes = [prefix for length in range(TOKENS) for prefix in itertools.product(range(VOCABULARY), repeat=length)]
    requests = [(prompt + list(prefix), dict(temperature=0, max_tokens=1, logprobs=VOCABULARY, ignore_eos=True))
                for prefix in prefixes]
    table = {}
    for prefix, output in zip(prefixes, server.generate_all(requests, 8)):
        row = {top.token_id: top.logprob for top in output.logprobs[0].top}
        assert sorted(row) == list(range(VOCABULARY))
        assert math.isclose(sum(math.exp(value) for value in row.values()), 1, abs_tol=1e-5)
        table[prefix] = [row[token] for token in range(VOCABULARY)]
    return table


def distribution(table, parameters):
    """Returns {first tokens: probability}. The end of text ends an output early."""
    joint = {(): 1.0}
    for _ in range(TOKENS):
        longer = {}
        for prefix, probability in joint.items():
            if prefix[-1:] == (END_OF_TEXT,):
                longer[prefix] = probability
                continue
            for token, chance in transform(table[prefix], prefix, parameters).items():
                longer[prefix + (token,)] = probability * chance
        joint = longer
    assert math.isclose(sum(joint.values()), 1, abs_tol=1e-9)
    return joint


def draw(server, count, **options):
    """Returns how often the first TOKENS tokens were these, and how all tokens were made."""
    return draw_by_drafter(server, count, **options)[:2]


def draw_by_drafter(server, count, concurrency=AT_ONCE, prompt=PROMPT, max_tokens=TOKENS, **options):
    """Returns how often the first TOKENS tokens were these, how all tokens were made, and how many each drafter guessed right."""
    message = harness.request(prompt, max_tokens=max_tokens, **options)
    command = [str(harness.BINARY_DIR / "tests" / "draw_outputs"), server.address, "--count", str(count), "--tokens", str(TOKENS),
               "--concurrency", str(concurrency)]
    drawn = subprocess.run(command, input=message.SerializeToString(), capture_output=True, timeout=600)
    assert drawn.returncode == 0, drawn.stderr.decode()
    counts = json.loads(drawn.stdout)
    return (collections.Counter({tuple(tokens): number for tokens, number in counts["outputs"]}),
            collections.Counter(dict(counts["sources"])), collections.Counter(counts["accepted"]))


def check_sources(counts, sources):
    assert sum(counts.values()) == DRAWS
    for source in (pb.TOKEN_SOURCE_ACCEPTED, pb.TOKEN_SOURCE_RECOVERED):
        assert sources[source] > DRAWS / 50, "both ways of making a token must have been taken"


@pytest.fixture(scope="module")
def tiny(models):
    """Makes folders of a target and of three drafters: the target itself, another model, and one that prefers tokens that the target
    avoids."""
    target = models.random(**SHAPE, seed=1)
    return {"target": target, "good": target, "other": models.random(**SHAPE, seed=2),
            "sharp": models.random(**{**SHAPE, "embedding_scale": 2.0}, seed=3)}


@pytest.fixture(scope="module")
def tables(servers, tiny):
    """Returns the log-probabilities of the target and of the other drafter."""
    return {name: log_probabilities(servers(target=tiny[name], drafter="none", max_slots=8)) for name in ("target", "other")}


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("draft,transport,draft_length", [("other", "shm", 3), ("sharp", "inline", 2)])
def test_distribution_is_the_targets(servers, tiny, tables, draft, transport, draft_length, configuration):
    parameters = CONFIGURATIONS[configuration]
    server = servers(target=tiny["target"], draft=tiny[draft], transport=transport, max_slots=AT_ONCE)
    harness.wait_until(lambda: server.info().ring_transport == transport, 30, f"there is a ring of {transport}")
    counts, sources = draw(server, DRAWS, draft_length=draft_length, **parameters)
    assert sum(counts.values()) == DRAWS
    for source in (pb.TOKEN_SOURCE_ACCEPTED, pb.TOKEN_SOURCE_RECOVERED):
        assert sources[source] > DRAWS / 50, "both ways of making a token must have been taken"
    assert g_test(counts, distribution(tables["target"], parameters)) > FALSE_ALARM

    if draft == "other" and configuration == "temperature 1":
        # This tests the test: the counts are not those of the drafter, and a tenth of the drafter would be noticed.
        target = distribution(tables["target"], parameters)
        drafter = distribution(tables["other"], parameters)
        assert g_test(counts, drafter) < FALSE_ALARM
        biased = {cell: 0.9 * target[cell] + 0.1 * drafter[cell] for cell in target}
        expected = {cell: round(DRAWS * probability) for cell, probability in biased.items()}
        assert g_test(expected, target) < FALSE_ALARM


# The target likes tokens 2 and 5 here, and the ends of many outputs stand in the prompt.
REPEATING_PROMPT = [6, 2, 2, 2, 5, 5, 2, 2, 2, 5, 0, 1, 2]
LOOKUPS = {
    "suffix": {},
    "ngram": {},
    "recycling": {},
    "prediction": dict(prediction=pb.Prediction(token_ids=pb.TokenIds(ids=[2, 5, 2]))),
    "retrieval": {},
}


@pytest.fixture(scope="module")
def corpus(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "text").write_text("cccfccfccccffcacbccc" * 20)
    built = harness.run_cli("index", "build", str(folder / "text"), "--target", str(tiny["target"]), "--output", str(folder / "index"))
    assert built.returncode == 0, built.stderr
    return folder / "index"


@pytest.mark.parametrize("drafter", LOOKUPS)
def test_distribution_with_drafts_that_were_found_is_the_targets(servers, models, tiny, corpus, drafter):
    target, options, at_once = tiny["target"], {}, AT_ONCE
    if drafter == "retrieval":
        # A search takes as long as a round of the tiny model, so the target is a larger one. With more requests, each waits longer for
        # its search, and fewer drafts come in time.
        target, options, at_once = models.random(**{**SHAPE, "intermediate_size": 4096, "layers": 8}, seed=1), dict(retrieval=corpus), 16
    server = servers(target=target, drafter="none", max_slots=at_once, **options)
    counts, sources = draw(server, DRAWS, concurrency=at_once, prompt=REPEATING_PROMPT, draft_length=3, temperature=1.0, drafter=drafter,
                           **LOOKUPS[drafter])
    assert sum(counts.values()) == DRAWS
    for source in (pb.TOKEN_SOURCE_ACCEPTED, pb.TOKEN_SOURCE_RECOVERED):
        assert sources[source] > DRAWS / (200 if drafter == "retrieval" else 50), "both ways of making a token must have been taken"
    expected = distribution(log_probabilities(server, REPEATING_PROMPT), CONFIGURATIONS["temperature 1"])
    assert g_test(counts, expected) > FALSE_ALARM


def test_distribution_with_trees_is_the_targets(servers, tiny):
    """The prompt goes on in several ways after the ends of many outputs, so a tree has several tokens for one position."""
    server = servers(target=tiny["target"], drafter="none", max_slots=AT_ONCE)
    options = dict(prompt=REPEATING_PROMPT, draft_length=3, temperature=1.0, drafter="suffix")
    counts, sources = draw(server, DRAWS, max_tree_nodes=12, **options)
    assert sum(counts.values()) == DRAWS
    for source in (pb.TOKEN_SOURCE_ACCEPTED, pb.TOKEN_SOURCE_RECOVERED):
        assert sources[source] > DRAWS / 50, "both ways of making a token must have been taken"
    expected = distribution(log_probabilities(server, REPEATING_PROMPT), CONFIGURATIONS["temperature 1"])
    assert g_test(counts, expected) > FALSE_ALARM
    _, of_chains = draw(server, DRAWS // 4, max_tree_nodes=0, **options)
    share = {name: found[pb.TOKEN_SOURCE_ACCEPTED] / sum(found.values()) for name, found in (("trees", sources), ("chains", of_chains))}
    assert share["trees"] > 1.2 * share["chains"], "siblings were accepted too"


def test_distribution_with_trees_of_a_draft_model_is_the_targets(servers, tiny, tables):
    """Siblings are drawn without replacement, and their rows go through the ring."""
    server = servers(target=tiny["target"], draft=tiny["other"], transport="shm", max_slots=AT_ONCE)
    options = dict(draft_length=2, **CONFIGURATIONS["all transforms"])
    counts, sources = draw(server, DRAWS, max_tree_nodes=6, **options)
    assert sum(counts.values()) == DRAWS
    assert g_test(counts, distribution(tables["target"], CONFIGURATIONS["all transforms"])) > FALSE_ALARM
    _, of_chains = draw(server, DRAWS // 4, **options)
    share = {name: found[pb.TOKEN_SOURCE_ACCEPTED] / sum(found.values()) for name, found in (("trees", sources), ("chains", of_chains))}
    assert share["trees"] > 1.1 * share["chains"], "siblings were accepted too"


def test_distribution_with_trees_of_a_draft_model_in_messages_is_the_targets(servers, tiny, tables):
    """The rows of a tree travel in the messages of the proposal and of the verdict."""
    server = servers(target=tiny["target"], draft=tiny["other"], transport="inline", max_slots=AT_ONCE)
    harness.wait_until(lambda: server.info().ring_transport == "inline", 30, "rows travel in messages")
    counts, sources = draw(server, DRAWS, max_tree_nodes=6, draft_length=2, **CONFIGURATIONS["temperature 1"])
    check_sources(counts, sources)
    assert g_test(counts, distribution(tables["target"], CONFIGURATIONS["temperature 1"])) > FALSE_ALARM
    trees = server.generate_all([(PROMPT, dict(max_tokens=40, ignore_eos=True, draft_length=2, max_tree_nodes=6))] * 4, 4)
    assert all(output.completion.speculation.num_trees > 0 for output in trees)


def used_drafters(server, prompt, **options):
    """Returns {(drafter, draft model): draft tokens} of 200 outputs."""
    used = collections.Counter()
    for output in server.generate_all([(prompt, dict(max_tokens=20, temperature=1.0, **options))] * 200, 16):
        for stats in output.completion.speculation.drafters:
            used[stats.name, stats.model] += stats.num_draft_tokens
    return used


def test_distribution_with_several_draft_models_is_the_targets(servers, tiny, tables):
    """Each model has a ring and keys of its own, and the requests of a round have different models."""
    server = servers(target=tiny["target"], draft=f"{tiny['other']},{tiny['sharp']}", max_slots=AT_ONCE)
    names = [tiny["other"].name, tiny["sharp"].name]
    harness.wait_until(lambda: [model.name for model in server.info().draft_models if model.attached] == names, 30, "both are attached")
    parameters = CONFIGURATIONS["temperature 1"]
    expected = distribution(tables["target"], parameters)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        drawn = [pool.submit(draw, server, DRAWS, concurrency=AT_ONCE // 2, draft_length=3, drafter=name, **parameters) for name in names]
        for one in drawn:
            counts, sources = one.result()
            check_sources(counts, sources)
            assert g_test(counts, expected) > FALSE_ALARM
    # Here the server chooses the model.
    counts, sources = draw(server, DRAWS, draft_length=3, **parameters)
    check_sources(counts, sources)
    assert g_test(counts, expected) > FALSE_ALARM
    assert set(used_drafters(server, PROMPT, draft_length=3)) == {("model", name) for name in names}


def test_distribution_with_the_servers_choice_of_drafters_is_the_targets(servers, models, tiny):
    """Lookups, recycling and heads draft in turn, and the server chooses among them. The length of drafts is fixed, because such a small
    target mostly decodes plainly otherwise, and then the test would have no power. The draft model may draft too, but its messages take as
    long as a pass of the target, so it has few of the rounds."""
    target = models.random(**{**SHAPE, "layers": 4}, seed=1)
    heads = models.random(**{**SHAPE, "embedding_scale": 1.0, "seed": 4, **HEADS["medusa"]})
    server = servers(target=target, draft=tiny["other"], heads=heads, max_slots=AT_ONCE,
                     environment={"TANDEM_DRAFTERS": "model,suffix,ngram,recycling,medusa"})
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
    counts, sources, accepted = draw_by_drafter(server, DRAWS, max_tokens=6, prompt=REPEATING_PROMPT, draft_length=3,
                                                **CONFIGURATIONS["temperature 1"])
    check_sources(counts, sources)
    expected = distribution(log_probabilities(server, REPEATING_PROMPT), CONFIGURATIONS["temperature 1"])
    assert g_test(counts, expected) > FALSE_ALARM
    assert sum(number > DRAWS / 50 for number in accepted.values()) > 2, accepted


HEADS = {"medusa": {"draft_heads": 3}, "blockwise": {"draft_heads": 3, "target_output": True}, "eagle": {"eagle": True},
         "eagle 3": {"eagle": True, "eagle3": True},
         "layer_skip": {"layers": 12, "skipped_layers": 5}, "pass": {"look_ahead": 3}}


@pytest.mark.parametrize("drafter", HEADS)
def test_distribution_with_heads_is_the_targets(servers, models, drafter):
    # The target has many layers, so that EAGLE, whose step costs one, goes deeper than its first guesses.
    target = models.random(**{**SHAPE, "layers": 12}, seed=1)
    heads = models.random(**{**SHAPE, "embedding_scale": 1.0, "seed": 4, **HEADS[drafter]})
    server = servers(target=target, drafter="none", max_slots=AT_ONCE, heads=heads)
    # More tokens than are counted, so that the first draft reaches beyond the second token.
    counts, sources = draw(server, DRAWS, max_tokens=5, draft_length=3, temperature=1.0, drafter=drafter.split()[0],
                           max_tree_nodes=5)
    check_sources(counts, sources)
    expected = distribution(log_probabilities(server), CONFIGURATIONS["temperature 1"])
    assert g_test(counts, expected) > FALSE_ALARM


@pytest.mark.parametrize("draft_sampling", [{"temperature": 0.4, "top_p": 0.8}, {"temperature": 0.0}], ids=["sharper", "likeliest"])
def test_distribution_with_a_draft_model_that_draws_in_its_own_way_is_the_targets(servers, tiny, tables, draft_sampling):
    server = servers(target=tiny["target"], draft=tiny["other"], transport="shm", max_slots=AT_ONCE)
    parameters = CONFIGURATIONS["temperature 1"]
    counts, sources = draw(server, DRAWS, draft_length=3, draft_sampling=draft_sampling, **parameters)
    assert sum(counts.values()) == DRAWS
    for source in (pb.TOKEN_SOURCE_ACCEPTED, pb.TOKEN_SOURCE_RECOVERED):
        assert sources[source] > DRAWS / 50, "both ways of making a token must have been taken"
    assert g_test(counts, distribution(tables["target"], parameters)) > FALSE_ALARM


def test_likeliest_drafts_leave_a_sampled_output_as_it_is(servers):
    """The draft model draws nothing, so each token is the target's own draw with the key of its position."""
    server = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=4)
    accepted = 0
    for seed in range(8):
        options = dict(prompt="Once upon a time there was", seed=seed, reproducible=False, temperature=0.8, max_tokens=60, ignore_eos=True)
        plain = server.generate(draft_length=0, **options)
        drafted = server.generate(draft_length=4, draft_sampling={"temperature": 0.0}, **options)
        assert drafted.token_ids == plain.token_ids
        accepted += drafted.completion.speculation.num_accepted_tokens
        drawn = server.generate(draft_length=4, draft_sampling={"temperature": 0.5}, **options)
        assert len(drawn.token_ids) == 60
    assert accepted > 8 * 15, "drafts were accepted"


def test_reproducible_outputs_over_seeds_have_the_targets_distribution(servers, tiny, tables):
    server = servers(target=tiny["target"], draft=tiny["other"], transport="shm", max_slots=AT_ONCE)
    parameters = CONFIGURATIONS["temperature 1"]
    counts, _ = draw(server, DRAWS // 2, draft_length=3, reproducible=True, **parameters)
    assert g_test(counts, distribution(tables["target"], parameters)) > FALSE_ALARM


def test_a_drafter_that_is_the_target_is_always_accepted(servers, tiny):
    server = servers(target=tiny["target"], draft=tiny["good"], transport="shm", max_slots=AT_ONCE)
    _, sources = draw(server, 500, draft_length=2, temperature=1.0)
    assert sources[pb.TOKEN_SOURCE_RECOVERED] == 0
    assert sources[pb.TOKEN_SOURCE_ACCEPTED] > 0


def test_tail_of_chi_squared():
    for statistic, degrees, probability in [(3.841459, 1, 0.05), (18.307038, 10, 0.05), (298.747, 200, 7.6e-6)]:
        assert math.isclose(upper_tail(statistic, degrees), probability, rel_tol=0.1)
