"""Tests that every field of the request has its effect, and that every field of the answer is true."""

import json
import math

import pytest

import harness
from harness import BEGIN_OF_TEXT, END_OF_TEXT
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb

PROMPT = PROMPTS[0]
DRAFT_LENGTHS = (0, 1, 4, 8)


@pytest.fixture(scope="module")
def server(servers):
    return servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, transport="shm", max_slots=4)


@pytest.fixture(scope="module")
def plainly(servers):
    return servers(drafter="none")


def detokenize(server, ids, **options):
    return server.stub.Detokenize(pb.DetokenizeRequest(ids=ids, **options)).text


# ---------------------------------------------------------------- ids and texts


@pytest.mark.parametrize("prompt", PROMPTS[-12:])
def test_texts_concatenate_to_the_decoded_ids(server, prompt):
    for options in (dict(temperature=0), dict(seed=3), dict(temperature=5.0, seed=4)):  # high temperatures break characters
        output = server.generate(prompt, max_tokens=40, ignore_eos=True, skip_special_tokens=False, **options)
        assert output.text == detokenize(server, output.token_ids, skip_special_tokens=False)
        assert len(output.sources) == len(output.token_ids) == 40


def test_every_message_holds_whole_characters_and_lags_no_further(server):
    responses = list(server.start(PROMPT, temperature=5.0, seed=11, max_tokens=64, ignore_eos=True))
    assert len(responses) > 1
    for response in responses[:-1]:
        assert "\ufffd" not in response.text or response.token_ids
        assert not response.HasField("completion")
    assert responses[-1].HasField("completion")
    assert len({response.request_id for response in responses}) == 1


def test_request_id_is_the_clients_or_made_up(server):
    assert server.generate(PROMPT, max_tokens=1, request_id="mine").request_ids == {"mine"}
    first, second = (server.generate(PROMPT, max_tokens=1).request_ids for _ in range(2))
    assert first != second and "" not in first | second


def test_ids_and_text_are_the_same_prompt(server):
    ids = list(server.stub.Tokenize(pb.TokenizeRequest(text=PROMPT)).ids)
    assert ids[0] == BEGIN_OF_TEXT
    assert (server.generate(ids, temperature=0, max_tokens=8).bytes == server.generate(PROMPT, temperature=0,
                                                                                       max_tokens=8).bytes)
    bare = server.generate(PROMPT, temperature=0, max_tokens=8, add_special_tokens=False)
    assert bare.completion.usage.prompt_tokens == len(ids) - 1
    assert bare.bytes == server.generate(ids[1:], temperature=0, max_tokens=8).bytes


def test_special_tokens_are_text_only_when_asked_for(server):
    bias = {END_OF_TEXT: 100.0}
    options = dict(temperature=0, max_tokens=3, ignore_eos=True, logit_bias=bias)
    assert server.generate(PROMPT, **options).text == ""
    assert server.generate(PROMPT, skip_special_tokens=False, **options).text == "<|end_of_text|>" * 3


# ---------------------------------------------------------------- how it ends


@pytest.fixture(scope="module")
def plain(plainly):
    return plainly.generate(PROMPT, temperature=0, max_tokens=48, ignore_eos=True)


@pytest.mark.parametrize("draft_length", DRAFT_LENGTHS)
@pytest.mark.parametrize("begin,length", [(5, 1), (17, 3), (30, 12), (60, 25)])
def test_text_ends_before_a_stop_string(server, plain, draft_length, begin, length):
    stop = plain.text[begin:begin + length]
    end = plain.text.index(stop)
    options = dict(temperature=0, max_tokens=48, ignore_eos=True, draft_length=draft_length)
    output = server.generate(PROMPT, stop=["never so", stop], **options)
    assert output.text == plain.text[:end]
    assert output.completion.finish_reason == pb.FINISH_REASON_STOP
    assert output.completion.stop_string == stop
    # The output ends with the token that completed the stop string.
    count = len(output.token_ids)
    assert output.token_ids == plain.token_ids[:count]
    assert stop in detokenize(server, output.token_ids)
    assert stop not in detokenize(server, output.token_ids[:-1])
    assert len(output.sources) == count == output.completion.usage.completion_tokens

    included = server.generate(PROMPT, stop=[stop], include_stop_str_in_output=True, **options)
    assert included.text == plain.text[:end + len(stop)]
    assert included.token_ids == output.token_ids


@pytest.mark.parametrize("draft_length", DRAFT_LENGTHS)
def test_a_stop_token_ends_the_output_and_is_its_last_id(server, plain, draft_length):
    for position in (0, 3, 20):
        stop = plain.token_ids[position]
        first = plain.token_ids.index(stop)
        output = server.generate(PROMPT, temperature=0, max_tokens=48, ignore_eos=True, stop_token_ids=[stop, 5],
                                 draft_length=draft_length)
        assert output.token_ids == plain.token_ids[:first + 1]
        assert output.text == detokenize(server, output.token_ids[:-1])
        assert output.completion.finish_reason == pb.FINISH_REASON_STOP
        assert output.completion.WhichOneof("stop_reason") == "stop_token_id"
        assert output.completion.stop_token_id == stop


@pytest.mark.parametrize("draft_length", DRAFT_LENGTHS)
def test_min_tokens_holds_back_end_of_text_and_stops(server, plain, draft_length):
    eager = dict(temperature=0, logit_bias={END_OF_TEXT: 100.0}, max_tokens=12, draft_length=draft_length)
    output = server.generate(PROMPT, **eager)
    assert output.token_ids == [END_OF_TEXT] and output.text == ""
    assert output.completion.stop_token_id == END_OF_TEXT
    output = server.generate(PROMPT, min_tokens=5, **eager)
    assert END_OF_TEXT not in output.token_ids[:5] and output.token_ids[5:] == [END_OF_TEXT]
    output = server.generate(PROMPT, ignore_eos=True, **eager)
    assert output.token_ids == [END_OF_TEXT] * 12
    assert output.completion.finish_reason == pb.FINISH_REASON_LENGTH

    stop = plain.text[8:14]
    held = server.generate(PROMPT, temperature=0, max_tokens=30, min_tokens=30, ignore_eos=True, stop=[stop],
                           draft_length=draft_length)
    assert len(held.token_ids) == 30 and held.completion.finish_reason == pb.FINISH_REASON_LENGTH


@pytest.mark.parametrize("where", ["generation_config.json", "config.json"])
def test_a_model_may_have_several_ends_of_text(models, tmp_path, where):
    folder = tmp_path / "model"
    models.write(folder, vocabulary_size=4096, hidden_size=32, layers=1, max_positions=64,
                 tokenizer_from=harness.TALES_TARGET)
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        settings = json.loads(path.read_text()) if path.exists() else {}
        settings.pop("eos_token_id", None)
        if name == where:
            settings["eos_token_id"] = [END_OF_TEXT, 300]
        path.write_text(json.dumps(settings))
    server = harness.Server(tmp_path, target=folder, drafter="none")
    for end in (END_OF_TEXT, 300):
        output = server.generate(PROMPT, temperature=0, max_tokens=4, logit_bias={end: 100.0})
        assert output.token_ids == [end] and output.text == ""
        assert output.completion.finish_reason == pb.FINISH_REASON_STOP and output.completion.stop_token_id == end
    server.stop()


def test_the_length_is_cut_to_the_rest_of_the_context(server):
    room = server.info().max_context_tokens
    prompt = [BEGIN_OF_TEXT] + [300 + i % 50 for i in range(room - 11)]
    output = server.generate(prompt, temperature=0, max_tokens=500, ignore_eos=True)
    assert len(output.token_ids) == 10
    assert output.completion.finish_reason == pb.FINISH_REASON_LENGTH
    assert output.completion.usage.prompt_tokens == room - 10


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_max_tokens_is_exact(server, plain, max_tokens):
    for draft_length in (0, 3, 8):
        output = server.generate(PROMPT, temperature=0, max_tokens=max_tokens, ignore_eos=True, draft_length=draft_length)
        assert output.token_ids == plain.token_ids[:max_tokens]
        assert output.completion.finish_reason == pb.FINISH_REASON_LENGTH


# ---------------------------------------------------------------- logprobs


@pytest.mark.parametrize("options", [dict(temperature=0), dict(seed=9), dict(seed=9, top_k=5, repetition_penalty=1.3)],
                         ids=["greedy", "sampled", "transformed"])
def test_logprobs_are_the_targets_and_the_same_with_any_draft(server, plainly, options):
    want = plainly.generate(PROMPT, max_tokens=32, logprobs=5, ignore_eos=True, **options)
    assert len(want.logprobs) == 32
    for logprobs in want.logprobs:
        values = [top.logprob for top in logprobs.top]
        assert len(values) == 5 and values == sorted(values, reverse=True)
        assert logprobs.logprob <= values[0] <= 0
    if "seed" not in options:
        for token_id, logprobs in zip(want.token_ids, want.logprobs):
            assert logprobs.top[0].token_id == token_id and logprobs.top[0].logprob == logprobs.logprob
    for draft_length in (1, 4, 8):
        got = server.generate(PROMPT, max_tokens=32, logprobs=5, ignore_eos=True, draft_length=draft_length, **options)
        assert got.token_ids == want.token_ids
        assert got.logprobs == want.logprobs  # bit for bit


def test_the_number_of_logprobs_is_the_requested_one(server):
    assert server.generate(PROMPT, max_tokens=4).logprobs == []
    none_on_top = server.generate(PROMPT, max_tokens=4, logprobs=0, ignore_eos=True).logprobs
    assert [len(logprobs.top) for logprobs in none_on_top] == [0] * 4
    assert all(logprobs.logprob < 0 for logprobs in none_on_top)
    twenty = server.generate(PROMPT, max_tokens=4, logprobs=20, ignore_eos=True).logprobs
    assert [len(logprobs.top) for logprobs in twenty] == [20] * 4


def test_sampling_parameters_do_not_change_logprobs(plainly):
    cold = plainly.generate(PROMPT, max_tokens=1, logprobs=20, temperature=0)
    hot = plainly.generate(PROMPT, max_tokens=1, logprobs=20, temperature=3.0, top_k=2, seed=1)
    assert cold.logprobs[0].top == hot.logprobs[0].top


# ---------------------------------------------------------------- numbers of the completion


@pytest.mark.parametrize("options", [
    dict(temperature=0, draft_length=4),
    dict(temperature=0, draft_length=0),
    dict(seed=1, draft_length=8),
    dict(draft_length=3),
    dict(),
    dict(temperature=0, draft_length=5, stop=["the"]),
])
def test_numbers_agree_with_each_other(server, options):
    for prompt in PROMPTS[:5]:
        output = server.generate(prompt, max_tokens=40, **options)
        completion, stats, timings = output.completion, output.completion.speculation, output.completion.timings

        assert completion.usage.completion_tokens == len(output.token_ids)
        assert completion.usage.prompt_tokens == len(server.stub.Tokenize(pb.TokenizeRequest(text=prompt)).ids)
        assert completion.usage.cached_prompt_tokens == 0

        count = {name: output.sources.count(value) for name, value in pb.TokenSource.items()}
        assert stats.num_accepted_tokens == count["TOKEN_SOURCE_ACCEPTED"]
        assert stats.num_plain_rounds == count["TOKEN_SOURCE_PLAIN"]
        # Every drafted round ends with a recovered or bonus token, unless the request ended before it.
        ended_rounds = count["TOKEN_SOURCE_RECOVERED"] + count["TOKEN_SOURCE_BONUS"]
        assert stats.num_drafts - 1 <= ended_rounds <= stats.num_drafts
        assert count["TOKEN_SOURCE_UNSPECIFIED"] == 0

        assert sum(stats.num_accepted_tokens_per_position) == stats.num_accepted_tokens
        assert sum(stats.num_tested_tokens_per_position) == stats.num_tested_tokens
        assert stats.num_accepted_tokens <= stats.num_tested_tokens <= stats.num_draft_tokens
        accepted = list(stats.num_accepted_tokens_per_position)
        tested = list(stats.num_tested_tokens_per_position)
        assert len(accepted) == len(tested)
        assert accepted == sorted(accepted, reverse=True) and tested == sorted(tested, reverse=True)
        assert all(one <= other for one, other in zip(accepted, tested))
        assert all(later <= earlier for earlier, later in zip(accepted, tested[1:]))
        if stats.num_drafts:
            assert math.isclose(stats.acceptance_rate, stats.num_accepted_tokens / stats.num_draft_tokens)
            assert math.isclose(stats.mean_acceptance_length, 1 + stats.num_accepted_tokens / stats.num_drafts)
            assert math.isclose(stats.alpha, stats.num_accepted_tokens / stats.num_tested_tokens)
            assert stats.drafter in server.info().drafters
        assert stats.reproducible == ("seed" in options)
        assert completion.lossless

        for field in timings.DESCRIPTOR.fields:
            assert getattr(timings, field.name) >= 0, field.name
        assert math.isclose(timings.time_to_first_token_seconds, timings.queue_seconds + timings.prefill_seconds,
                            abs_tol=1e-3)
        if len(output.token_ids) > 8:
            parts = (timings.draft_seconds + timings.verify_seconds + timings.transfer_seconds + timings.router_seconds)
            assert math.isclose(parts, timings.decode_seconds, rel_tol=0.02, abs_tol=1e-3)
            assert timings.verify_seconds > 0
            assert (timings.draft_seconds > 0) == (stats.num_drafts > 0)


def test_lenience_is_reported_and_accepts_more(server):
    def accepted(**options):
        outputs = [server.generate(prompt, max_tokens=40, draft_length=4, ignore_eos=True, **options) for prompt in PROMPTS[:12]]
        rates = [output.completion.speculation for output in outputs]
        return ({output.completion.lossless for output in outputs},
                sum(rate.num_accepted_tokens for rate in rates) / sum(rate.num_tested_tokens for rate in rates))

    for options in (dict(temperature=1.0), dict(temperature=0)):
        (exact, alpha), (lenient, lenient_alpha) = accepted(**options), accepted(lenience=0.05, **options)
        assert exact == {True} and lenient == {False}
        assert lenient_alpha > alpha


def test_served_model_may_be_named(server):
    info = server.info()
    assert server.generate(PROMPT, max_tokens=1, model=info.model).token_ids
    assert server.generate(PROMPT, max_tokens=4, drafter=info.drafters[0], draft_length=2).token_ids
