"""Tests that with a seed, the output depends only on (target, prompt, parameters, seed)."""

import itertools
import random

import pytest

import harness
from prompts import PROMPTS

PARAMETERS = [
    dict(),
    dict(temperature=0.7, top_p=0.9),
    dict(temperature=1.3, top_k=40, min_p=0.02),
    dict(repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.2),
    dict(logit_bias={262: 2.0, 11: -3.0}, min_tokens=8),
    dict(temperature=0.9, top_k=100, top_p=0.95, min_p=0.01, repetition_penalty=1.1, logit_bias={300: 1.5}),
]
REQUESTS = [(prompt, dict(seed=1000 + i, max_tokens=24, **parameters))
            for i, (prompt, parameters) in enumerate(itertools.product(PROMPTS[:6], PARAMETERS))]


@pytest.fixture(scope="module")
def reference(servers):
    outputs = servers(drafter="none").generate_all(REQUESTS, concurrency=1)
    assert all(output.completion.speculation.reproducible for output in outputs), "a seed turns it on"
    return [output.bytes for output in outputs]


def check(server, reference, concurrency, noise=False, **speculation):
    order = list(range(len(REQUESTS)))
    random.Random(len(speculation) + concurrency).shuffle(order)
    requests = []
    for i in order:
        prompt, options = REQUESTS[i]
        requests.append((i, (prompt, {**options, **speculation})))
        if noise:  # neighbors in the batch that take other paths
            requests.append((None, (prompt, dict(max_tokens=7, top_k=50))))
            requests.append((None, (prompt, dict(max_tokens=9, temperature=0, draft_length=i % 5))))
    outputs = server.generate_all([request for _, request in requests], concurrency)
    for (i, request), output in zip(requests, outputs):
        if i is not None:
            assert output.bytes == reference[i], request


@pytest.mark.parametrize("transport", ["shm", "inline"])
@pytest.mark.parametrize("draft", ["embedded", "target itself", "random"])
def test_the_output_does_not_depend_on_drafter_and_draft_length(servers, models, reference, draft, transport):
    folder = {"embedded": harness.TALES_DRAFT, "target itself": harness.TALES_TARGET}.get(draft)
    server = servers(target=harness.TALES_TARGET, draft=folder or models.tales_sized_draft(), transport=transport,
                     max_slots=8)
    for draft_length in range(9):
        check(server, reference, concurrency=8, draft_length=draft_length)
    if draft == "embedded":
        outputs = server.generate_all([(prompt, {**options, "draft_length": 4}) for prompt, options in REQUESTS], 8)
        drafted = sum(output.completion.speculation.num_draft_tokens for output in outputs)
        accepted = sum(output.completion.speculation.num_accepted_tokens for output in outputs)
        assert accepted / drafted > 0.2, "coupled noise must make the drafter agree"


def test_the_output_does_not_depend_on_the_batch(servers, reference):
    server = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, transport="shm", max_slots=8)
    check(server, reference, concurrency=1)  # adaptive or server's own draft length
    for concurrency in (2, 5, 12):
        check(server, reference, concurrency, noise=True)


def test_seeds_matter(servers):
    server = servers(drafter="none")
    outputs = {server.generate(PROMPTS[0], seed=seed, max_tokens=16).bytes for seed in range(8)}
    assert len(outputs) == 8


def test_a_request_says_which_seed_it_used(servers):
    server = servers(drafter="none")
    assert server.generate(PROMPTS[0], seed=2**64 - 1, max_tokens=1).completion.seed == 2**64 - 1
    first = server.generate(PROMPTS[0], max_tokens=16, reproducible=True)
    second = server.generate(PROMPTS[0], max_tokens=16, reproducible=True)
    assert first.completion.seed != second.completion.seed
    again = server.generate(PROMPTS[0], max_tokens=16, seed=first.completion.seed)
    assert again.bytes == first.bytes


def test_a_seed_with_reproducible_false_samples_plainly(servers):
    server = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, transport="shm", max_slots=8)
    output = server.generate(PROMPTS[0], seed=5, reproducible=False, max_tokens=16, draft_length=4)
    assert not output.completion.speculation.reproducible
    # With one request, one draft length and one seed, the draws are still the same.
    again = server.generate(PROMPTS[0], seed=5, reproducible=False, max_tokens=16, draft_length=4)
    assert again.bytes == output.bytes
