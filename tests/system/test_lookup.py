"""Tests drafts that the router finds in text: the output is that of plain decoding, and rounds take one round trip."""

import grpc
import pytest

import harness
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb

REPEATING = "The king said: bring me the golden bird. The queen said: bring me the golden bird. The fox said:"
MODES = {"greedy": dict(temperature=0), "reproducible": dict(seed=7), "sampled": dict(seed=7, reproducible=False)}


def requests(**options):
    return [(prompt, dict(max_tokens=40, **options)) for prompt in [*PROMPTS[:8], REPEATING]]


@pytest.fixture(scope="module")
def plain(servers):
    server = servers(drafter="none")
    return {mode: [output.bytes for output in server.generate_all(requests(**options), 1)] for mode, options in MODES.items()}


@pytest.mark.parametrize("concurrency", [1, 8], ids=["alone", "batched"])
@pytest.mark.parametrize("drafter", ["suffix", "ngram"])
def test_output_is_that_of_plain_decoding(servers, plain, drafter, concurrency):
    """This holds for sampled requests too: the target's own draw decides about a token that was found."""
    server = servers(drafter="none", max_slots=8)
    drafted = accepted = 0
    for mode, options in MODES.items():
        for length in ({}, {"draft_length": 1}, {"draft_length": 6}):
            outputs = server.generate_all(requests(**options, **length, drafter=drafter), concurrency)
            assert [output.bytes for output in outputs] == plain[mode], (mode, length)
            for output in outputs:
                stats = output.completion.speculation
                assert {used.name for used in stats.drafters} <= {drafter}
                drafted += stats.num_draft_tokens
                accepted += stats.num_accepted_tokens
    assert 0 < accepted < drafted


def test_the_right_prediction_is_accepted_in_whole(servers, plain):
    server = servers(drafter="none", max_slots=8)
    for mode, options in MODES.items():
        for (prompt, request), want in zip(requests(**options), plain[mode]):
            answer = server.generate(prompt, **request)
            assert answer.bytes == want
            again = server.generate(prompt, **request, draft_length=8, prediction=pb.Prediction(
                token_ids=pb.TokenIds(ids=answer.token_ids)))
            assert again.bytes == want, mode
            usage, stats = again.completion.usage, again.completion.speculation
            assert usage.rejected_prediction_tokens == 0
            assert usage.accepted_prediction_tokens == stats.num_accepted_tokens == stats.num_draft_tokens
            assert stats.num_drafts + stats.num_plain_rounds <= 2 + len(answer.token_ids) // 9 + 1


def test_a_wrong_prediction_is_counted_and_changes_nothing(servers, plain):
    server = servers(drafter="none", max_slots=8)
    for (prompt, request), want in zip(requests(temperature=0), plain["greedy"]):
        output = server.generate(prompt, **request, draft_length=4, prediction=pb.Prediction(text=" xylophone" * 30))
        assert output.bytes == want
        assert output.completion.usage.accepted_prediction_tokens < 3
        assert output.completion.usage.rejected_prediction_tokens > 0


def test_lookups_beside_a_draft_model(servers, plain):
    server = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=8,
                     environment={"TANDEM_DRAFTERS": "model,suffix"})
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
    for mode in ("greedy", "reproducible"):
        used = set()
        for length in ({}, {"draft_length": 3}):
            outputs = server.generate_all(requests(**MODES[mode], **length), 8)
            assert [output.bytes for output in outputs] == plain[mode]
            used |= {stats.name for output in outputs for stats in output.completion.speculation.drafters}
        assert used == {"model", "suffix"}


def test_what_is_no_drafter_is_refused(servers):
    server = servers(drafter="none", max_slots=8)
    assert list(server.info().drafters) == ["prediction", "suffix", "ngram"]
    for name in ("model", "eagle", "tales-draft"):
        with pytest.raises(grpc.RpcError) as refused:
            server.generate("Once", drafter=name)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "speculation.drafter" in refused.value.details() and "suffix" in refused.value.details()
    with pytest.raises(grpc.RpcError) as refused:
        server.generate("Once", prediction=pb.Prediction(token_ids=pb.TokenIds(ids=[1, 99999])))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "speculation.prediction.token_ids[1]" in refused.value.details()
