"""Tests which requests are refused, with which status and which words, and that no other client notices."""

import subprocess

import grpc
import pytest

import harness
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb

NAN, INFINITY = float("nan"), float("inf")
INVALID = grpc.StatusCode.INVALID_ARGUMENT

# (what the message must contain: field and limit, fields of the request)
BAD_PARAMETERS = [
    (["temperature", "-0.5"], dict(temperature=-0.5)),
    (["temperature", "nan"], dict(temperature=NAN)),
    (["temperature", "inf"], dict(temperature=INFINITY)),
    (["top_p", "0", "1"], dict(top_p=0.0)),
    (["top_p", "1.5", "1"], dict(top_p=1.5)),
    (["top_p", "-0.1", "0"], dict(top_p=-0.1)),
    (["top_p", "nan"], dict(top_p=NAN)),
    (["min_p", "-0.5", "0 to 1"], dict(min_p=-0.5)),
    (["min_p", "1.5", "0 to 1"], dict(min_p=1.5)),
    (["min_p", "nan"], dict(min_p=NAN)),
    (["top_k", "-2", "-1"], dict(top_k=-2)),
    (["repetition_penalty", "0"], dict(repetition_penalty=0.0)),
    (["repetition_penalty", "-1"], dict(repetition_penalty=-1.0)),
    (["repetition_penalty", "inf"], dict(repetition_penalty=INFINITY)),
    (["presence_penalty", "2.5", "-2 to 2"], dict(presence_penalty=2.5)),
    (["presence_penalty", "nan", "-2 to 2"], dict(presence_penalty=NAN)),
    (["frequency_penalty", "-3", "-2 to 2"], dict(frequency_penalty=-3.0)),
    (["frequency_penalty", "inf", "-2 to 2"], dict(frequency_penalty=-INFINITY)),
    (["logit_bias", "-1", "4095"], dict(logit_bias={-1: 1.0})),
    (["logit_bias", "4096", "4095"], dict(logit_bias={4096: 1.0})),
    (["logit_bias", "101", "-100 to 100"], dict(logit_bias={5: 101.0})),
    (["logit_bias", "nan", "-100 to 100"], dict(logit_bias={5: NAN})),
    (["logprobs", "-1", "20"], dict(logprobs=-1)),
    (["logprobs", "21", "20"], dict(logprobs=21)),
    (["stop", "empty"], dict(stop=["fine", ""])),
    (["stop", "100", "at most"], dict(stop=["x"] * 100)),
    (["stop", "100000", "at most"], dict(stop=["x" * 100_000])),
    (["stop_token_ids", "-1", "4095"], dict(stop_token_ids=[-1])),
    (["stop_token_ids", "4096", "4095"], dict(stop_token_ids=[1, 4096])),
    (["max_tokens", "0", "1"], dict(max_tokens=0)),
    (["max_tokens", "-5", "1"], dict(max_tokens=-5)),
    (["min_tokens", "-1", "0"], dict(min_tokens=-1)),
    (["min_tokens", "9", "8"], dict(min_tokens=9, max_tokens=8)),
    (["draft_length", "-1", "0"], dict(draft_length=-1)),
    (["draft_length", "1000"], dict(draft_length=1000)),
    (["lenience", "0"], dict(lenience=0.0)),
    (["lenience", "1.5", "1"], dict(lenience=1.5)),
    (["lenience", "nan", "1"], dict(lenience=NAN)),
    (["lenience", "reproducible"], dict(lenience=0.5, reproducible=True)),
    (["draft_sampling.temperature", "-1"], dict(draft_sampling={"temperature": -1.0})),
    (["draft_sampling.top_p", "2", "1"], dict(draft_sampling={"top_p": 2.0})),
    (["drafter", "no-such-drafter"], dict(drafter="no-such-drafter")),
]
BAD_PROMPTS = [
    (["prompt"], None),
    (["prompt", "empty"], ""),
    (["prompt_token_ids"], []),
    (["prompt_token_ids", "-1", "4095"], [1, -1]),
    (["prompt_token_ids", "4096", "4095"], [4096]),
    (["prompt_token_ids", "1024", "1023"], [300] * 1024),
    (["prompt", "1023"], "word " * 2000),
]


@pytest.fixture(scope="module")
def server(servers):
    return servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=4)


@pytest.fixture(scope="module")
def neighbors(server):
    running = harness.Neighbors(server)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def narrow(servers, models):
    """A server with one slot and a queue of two. A stream of 15,000 tokens takes it far longer than any delay of this process."""
    target = models.random(vocabulary_size=4096, hidden_size=256, layers=4, heads=4, kv_heads=2, head_size=64, dtype="bf16",
                           max_positions=16384, tokenizer_from=harness.TALES_TARGET)
    return servers(target=target, drafter="none", max_slots=1, max_queue=2, environment=harness.PATIENT)


@pytest.fixture(autouse=True)
def neighbors_are_undisturbed(neighbors):
    yield
    neighbors.check()


def refusal(server, prompt, **options):
    with pytest.raises(grpc.RpcError) as error:
        server.generate(prompt, **options)
    return error.value.code(), error.value.details()


@pytest.mark.parametrize("words,options", BAD_PARAMETERS, ids=[f"{next(iter(o))}-{i}" for i, (_, o) in enumerate(BAD_PARAMETERS)])
def test_a_bad_parameter_is_named_with_its_limit(server, words, options):
    code, message = refusal(server, PROMPTS[0], **options)
    assert code == INVALID, message
    for word in words:
        assert word in message.lower(), message


@pytest.mark.parametrize("words,prompt", BAD_PROMPTS, ids=[str(i) for i in range(len(BAD_PROMPTS))])
def test_a_bad_prompt_is_named_with_its_limit(server, words, prompt):
    code, message = refusal(server, prompt)
    assert code == INVALID, message
    for word in words:
        assert word in message.lower(), message


def test_borders_are_allowed(server):
    for options in [
            dict(top_p=1.0, min_p=0.0, top_k=-1), dict(top_k=0), dict(top_k=100_000), dict(min_p=1.0), dict(top_p=1e-6),
            dict(presence_penalty=2.0, frequency_penalty=-2.0), dict(logit_bias={0: 100.0, 4095: -100.0}), dict(logprobs=20),
            dict(min_tokens=4), dict(draft_length=0), dict(draft_length=server.info().max_draft_length), dict(lenience=1.0),
            dict(temperature=1e-3), dict(temperature=100.0), dict(repetition_penalty=1e-3), dict(seed=0),
            dict(lenience=1.0, reproducible=True), dict(draft_sampling={"temperature": 0.0, "top_k": -1, "top_p": 1.0})
    ]:
        output = server.generate(PROMPTS[0], max_tokens=4, **options)
        assert 1 <= len(output.token_ids) <= 4, options
    assert len(server.generate([300] * 1023, max_tokens=9, ignore_eos=True).token_ids) == 1


def test_a_message_that_is_too_large_is_refused(server):
    code, message = refusal(server, "x" * (40 << 20))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED, message
    assert "larger than max" in message.lower()


def test_an_unknown_model_is_not_found(server):
    code, message = refusal(server, PROMPTS[0], model="gpt-17")
    assert code == grpc.StatusCode.NOT_FOUND
    assert "gpt-17" in message and server.info().model in message


def test_a_running_request_id_already_exists(narrow):
    stream = narrow.start(PROMPTS[0], request_id="twin", max_tokens=15_000, ignore_eos=True)
    next(stream)
    code, message = refusal(narrow, PROMPTS[0], request_id="twin", max_tokens=1)
    assert code == grpc.StatusCode.ALREADY_EXISTS and "twin" in message
    stream.cancel()
    harness.wait_until(lambda: _runs(narrow, "twin"), 30, "the id is free again")


def _runs(server, request_id):
    try:
        return bool(server.generate(PROMPTS[0], request_id=request_id, max_tokens=1).token_ids)
    except grpc.RpcError:
        return False


@pytest.mark.parametrize("field", [2, 1, 6])  # prompt, request_id, model: all of them strings
def test_invalid_utf8_is_refused_by_the_parser_and_nothing_else_happens(server, field):
    """gRPC's generated parser refuses the message before a handler sees it, and answers INTERNAL. This test pins the behavior."""
    bad = bytes([field << 3 | 2, 4]) + b"ab\xff\xfe"
    if field != 2:
        bad = harness.request(PROMPTS[0], max_tokens=1).SerializeToString() + bad
    call = server.channel.unary_stream("/tandem.v1.Generation/Generate", request_serializer=lambda data: data,
                                       response_deserializer=pb.GenerateResponse.FromString)
    with pytest.raises(grpc.RpcError) as error:
        list(call(bad, timeout=30))
    assert error.value.code() == grpc.StatusCode.INTERNAL
    assert server.generate(PROMPTS[0], max_tokens=2, ignore_eos=True).completion.usage.completion_tokens == 2


def test_garbage_on_the_wire_is_refused(server):
    call = server.channel.unary_stream("/tandem.v1.Generation/Generate", request_serializer=lambda data: data,
                                       response_deserializer=pb.GenerateResponse.FromString)
    with pytest.raises(grpc.RpcError) as error:
        list(call(b"\xff" * 64, timeout=30))
    assert error.value.code() == grpc.StatusCode.INTERNAL
    with pytest.raises(grpc.RpcError) as error:
        server.channel.unary_unary("/tandem.v1.Generation/NoSuchCall", request_serializer=lambda data: data,
                                   response_deserializer=lambda data: data)(b"", timeout=30)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_bad_calls_around_generate_are_refused(server):
    with pytest.raises(grpc.RpcError) as error:
        server.stub.Detokenize(pb.DetokenizeRequest(ids=[5, 4096]))
    assert error.value.code() == INVALID and "ids" in error.value.details() and "4095" in error.value.details()
    with pytest.raises(grpc.RpcError) as error:
        server.stub.Detokenize(pb.DetokenizeRequest(ids=[-1]))
    assert error.value.code() == INVALID
    with pytest.raises(grpc.RpcError) as error:
        server.stub.Tokenize(pb.TokenizeRequest(text="x" * (3 << 20)))
    assert error.value.code() in (INVALID, grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_ids_whose_text_is_too_long_are_refused_by_name(server):
    longest = max(range(4096), key=lambda token_id: len(server.stub.Detokenize(pb.DetokenizeRequest(ids=[token_id])).text))
    limit = 4 << 20
    with pytest.raises(grpc.RpcError) as error:
        server.stub.Detokenize(pb.DetokenizeRequest(ids=[longest] * 1_500_000))
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "ids" in error.value.details() and str(limit - 8) in error.value.details()


def test_refusals_say_nothing_about_the_machine(server):
    for prompt, options in [(PROMPTS[0], dict(top_p=2.0)), ("", {}), (PROMPTS[0], dict(model="x"))]:
        message = refusal(server, prompt, **options)[1]
        assert str(harness.SOURCE_DIR) not in message and "0x" not in message and "tmp" not in message


def test_neighbors_ran_all_the_while(neighbors):
    harness.wait_until(lambda: min(neighbors.counts) >= 3, 30, "both neighbors finished streams")


def test_a_full_queue_refuses_with_a_hint(narrow):
    # The stream that holds the only slot must not end before the others have arrived, however late this process runs.
    endless = dict(temperature=0, max_tokens=15_000, ignore_eos=True)
    compared = 600
    want = narrow.generate(PROMPTS[0], **{**endless, "max_tokens": compared}).token_ids
    running = narrow.start(PROMPTS[0], **endless)
    said = list(next(running).token_ids)
    # It is not specified which of the three simultaneous requests is refused.
    waiting = [narrow.start(PROMPTS[0], **endless) for _ in range(3)]
    harness.wait_until(lambda: any(not stream.is_active() for stream in waiting), 30, "one is refused")
    refused = [stream for stream in waiting if not stream.is_active()]
    assert len(refused) == 1
    assert refused[0].code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "2" in refused[0].details() and "queue" in refused[0].details()
    hints = [value for key, value in refused[0].trailing_metadata() if key == "grpc-retry-pushback-ms"]
    assert hints and int(hints[0]) > 0
    assert running.is_active()
    for stream in waiting:
        stream.cancel()
    while len(said) < compared:
        said.extend(next(running).token_ids)
    assert said[:compared] == want
    running.cancel()


def test_a_client_that_is_too_slow_is_cut_off_with_a_reason(servers, models):
    """The client does not read. The waiting part of its stream is limited, and the client learns the reason when it reads again."""
    target = models.random(vocabulary_size=4096, hidden_size=32, layers=1, dtype="bf16", max_positions=16384, seed=9,
                           tokenizer_from=harness.TALES_TARGET)
    server = servers(target=target, drafter="none", max_slots=1)
    # This turns off the probe that lets the client's own buffer grow to megabytes.
    channel = grpc.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1),
                                                             ("grpc.http2.bdp_probe", 0)])
    stream = harness.generate_pb2_grpc.GenerationStub(channel).Generate(
        harness.request([1, 2, 3], temperature=0, max_tokens=16_000, ignore_eos=True, logprobs=20), timeout=60)
    said = len(next(stream).token_ids)
    # Its slot is the only one. It is free long before the output would have ended.
    assert len(server.generate([1, 2, 3], temperature=0, max_tokens=4, ignore_eos=True).token_ids) == 4
    with pytest.raises(grpc.RpcError) as error:
        for response in stream:
            said += len(response.token_ids)
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error.value.details()
    assert "client too slow" in error.value.details() and "bytes" in error.value.details()
    assert said < 16_000
    assert dict(error.value.trailing_metadata())["tandem-emitted-tokens"] == str(said)
    channel.close()


def test_a_target_row_that_is_not_finite_ends_its_own_request_alone(servers, models, tmp_path):
    folder = tmp_path / "target"
    models.write(folder, vocabulary_size=4096, hidden_size=32, layers=2, max_positions=4096, untied=True, seed=5,
                 tokenizer_from=harness.TALES_TARGET)
    poison = 777  # a row of the embedding; every row that reads this token becomes NaN
    harness.overwrite_tensor(folder / "model.safetensors", "model.embed_tokens.weight", NAN, first=32 * poison, count=32)
    # The neighbor's stream is not read until the others have ended.
    server = servers(target=folder, draft=models.tales_sized_draft(), max_slots=4, environment=harness.PATIENT)
    healthy = dict(temperature=0, max_tokens=3000, ignore_eos=True, logit_bias={poison: -100.0})
    want = server.generate([1, 2, 3], **healthy).bytes
    neighbor = server.start([1, 2, 3], **healthy)
    output = harness.Output([], "", [], [], None, set())
    output.add(next(neighbor))
    for prompt in ([5, poison, 6], [poison]):
        code, message = refusal(server, prompt, max_tokens=8)
        assert code == grpc.StatusCode.INTERNAL
        assert "finite" in message
    # The fault occurs in the middle of an output. Tokens that were sent before stay.
    stream = server.start([9, 9], temperature=0, max_tokens=50, ignore_eos=True, logit_bias={poison: 100.0}, min_tokens=0)
    said = []
    with pytest.raises(grpc.RpcError) as error:
        for response in stream:
            said.extend(response.token_ids)
    assert error.value.code() == grpc.StatusCode.INTERNAL
    assert said == [poison]
    for response in neighbor:
        output.add(response)
    assert output.bytes == want


def test_a_draining_server_is_unavailable_and_finishes_what_runs(tmp_path):
    server = harness.Server(tmp_path)
    long = dict(temperature=0, max_tokens=900, ignore_eos=True)
    want = server.generate(PROMPTS[0], **long).bytes
    stream = server.start(PROMPTS[0], **long)
    output = harness.Output([], "", [], [], None, set())
    output.add(next(stream))
    channel = server.channel
    server.process.terminate()
    refused = []

    def is_unavailable():
        try:
            harness.Output.read(server.start(PROMPTS[1], max_tokens=1))
            return False
        except grpc.RpcError as error:
            refused.append(error)
            return error.code() == grpc.StatusCode.UNAVAILABLE

    harness.wait_until(is_unavailable, 30, "new requests are refused")
    for response in stream:
        output.add(response)
    assert output.bytes == want
    assert server.process.wait(25) == 0
    channel.close()


def test_a_draft_model_that_the_server_does_not_have_is_refused(servers):
    server = servers(target=harness.TALES_TARGET, drafter="none", max_slots=1)
    with pytest.raises(grpc.RpcError) as error:
        server.generate("Once", max_tokens=4, drafter="model")
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details() == ('speculation.drafter: got "model", allowed: "prediction", "suffix", "ngram", "recycling", "none", or '
                                     'empty (no draft model is attached)')
    done = harness.run_cli("generate", "--target", str(harness.TALES_TARGET), "--drafter", "model", "Once")
    assert done.returncode == 1 and 'speculation.drafter: got "model", allowed: "prediction"' in done.stderr
    done = harness.run_cli("serve", "--target", str(harness.TALES_TARGET), "--drafters", "suffix,model")
    assert done.returncode == 2 and '--drafters: got "model", allowed without a draft model: the others' in done.stderr
    router = subprocess.run([str(harness.BINARY_DIR / "bin" / "tandem-router"), "--target", str(harness.TALES_TARGET), "--verifier",
                             "127.0.0.1:1", "--drafters", "model"], capture_output=True, text=True, timeout=30)
    assert router.returncode == 2 and "--drafters: got model, allowed without a draft worker: the others" in router.stderr
