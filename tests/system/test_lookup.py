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
@pytest.mark.parametrize("drafter", ["suffix", "ngram", "recycling"])
def test_output_is_that_of_plain_decoding(servers, plain, drafter, concurrency):
    """This holds for sampled requests too: the target's own draw decides about a token that was found."""
    server = servers(drafter="none", max_slots=8)
    drafted = accepted = 0
    for mode, options in MODES.items():
        for length in ({}, {"draft_length": 1}, {"draft_length": 6}, {"draft_length": 4, "max_tree_nodes": 16}):
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
        wrong = [token if i % 5 else token - 1 for i, token in enumerate(want[0], start=1)]
        output = server.generate(prompt, **request, draft_length=4, prediction=pb.Prediction(token_ids=pb.TokenIds(ids=wrong)))
        assert output.bytes == want
        assert output.completion.usage.accepted_prediction_tokens > 0
        assert output.completion.usage.rejected_prediction_tokens > 0


def test_lookups_beside_a_draft_model(servers, plain):
    server = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=8,
                     environment={"TANDEM_DRAFTERS": "model,suffix"})
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
    used = set()
    for mode in ("greedy", "reproducible"):
        for length in ({}, {"draft_length": 3}):
            outputs = server.generate_all(requests(**MODES[mode], **length), 8)
            assert [output.bytes for output in outputs] == plain[mode]
            used |= {stats.name for output in outputs for stats in output.completion.speculation.drafters}
    assert used == {"model", "suffix"}


def test_what_is_no_drafter_is_refused(servers):
    server = servers(drafter="none", max_slots=8)
    assert list(server.info().drafters) == ["prediction", "suffix", "ngram", "recycling"]
    for name in ("model", "eagle", "tales-draft"):
        with pytest.raises(grpc.RpcError) as refused:
            server.generate("Once", drafter=name)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "speculation.drafter" in refused.value.details() and "suffix" in refused.value.details()
    with pytest.raises(grpc.RpcError) as refused:
        server.generate("Once", prediction=pb.Prediction(token_ids=pb.TokenIds(ids=[1, 99999])))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "speculation.prediction.token_ids[1]" in refused.value.details()


@pytest.fixture(scope="module")
def corpus(servers, plain, tmp_path_factory):
    """An index of the answers of plain decoding, and of some text that has nothing to do with them."""
    folder = tmp_path_factory.mktemp("corpus")
    for mode, answers in plain.items():
        for i, (prompt, answer) in enumerate(zip([*PROMPTS[:8], REPEATING], answers)):
            (folder / f"{mode}{i}.txt").write_text(prompt + answer[1])
    (folder / "other.txt").write_text("Lorem ipsum dolor sit amet. " * 50)
    index = tmp_path_factory.mktemp("index") / "answers.index"
    built = harness.run_cli("index", "build", str(folder), "--target", str(harness.TALES_TARGET), "--output", str(index))
    assert built.returncode == 0, built.stderr
    assert f"{index}: " in built.stdout and " 28 documents" in built.stdout
    return index


@pytest.mark.parametrize("concurrency", [1, 8], ids=["alone", "batched"])
def test_retrieval_changes_nothing_and_serves_what_was_said_before(servers, plain, corpus, concurrency):
    server = servers(drafter="none", max_slots=8, retrieval=corpus)
    assert list(server.info().drafters) == ["prediction", "suffix", "ngram", "retrieval", "recycling"]
    drafted = accepted = 0
    for mode, options in MODES.items():
        for length in ({}, {"draft_length": 6}):
            outputs = server.generate_all(requests(**options, **length), concurrency)
            assert [output.bytes for output in outputs] == plain[mode], (mode, length)
            for output in outputs:
                stats = output.completion.speculation
                assert {used.name for used in stats.drafters} <= {"retrieval"}
                drafted += stats.num_draft_tokens
                accepted += stats.num_accepted_tokens
    assert drafted > 200 and accepted / drafted > 0.5


def test_an_index_that_does_not_fit_is_refused(corpus, models, tmp_path):
    def complaint(*arguments):
        ended = harness.run_cli("generate", "--target", str(harness.TALES_TARGET), *arguments, "Once")
        assert ended.returncode != 0
        return ended.stderr

    whole = corpus.read_bytes()
    short = tmp_path / "short.index"
    short.write_bytes(whole[:-1])
    assert "--retrieval" in complaint("--retrieval", str(short)) and "its header promises" in complaint("--retrieval", str(short))
    assert "no such file" in complaint("--retrieval", str(tmp_path / "none")).lower()
    other = models.random(vocabulary_size=300, hidden_size=16, layers=1, max_positions=64, seed=1)
    ended = harness.run_cli("generate", "--target", str(other), "--retrieval", str(corpus), "Once")
    assert "was built with the tokenizer of another model" in ended.stderr
    assert '"retrieval" needs an index' in complaint("--drafters", "retrieval")


def test_the_environment_names_the_drafters_too(servers, corpus):
    server = servers(drafter="none", max_slots=8, retrieval=corpus, environment={"TANDEM_DRAFTERS": "suffix"})
    outputs = server.generate_all(requests(temperature=0), 4)
    assert {used.name for output in outputs for used in output.completion.speculation.drafters} == {"suffix"}


def test_index_build_says_what_is_wrong(tmp_path):
    def complaint(*arguments):
        ended = harness.run_cli("index", "build", *arguments)
        assert ended.returncode == 2
        return ended.stderr

    output = ["--output", str(tmp_path / "index")]
    assert "--output FILE" in complaint(str(tmp_path))
    (tmp_path / "empty").mkdir()
    assert "holds no file with text" in complaint(str(tmp_path / "empty"), *output)
    assert "cannot read" in complaint(str(tmp_path / "none"), *output)
    (tmp_path / "bad").write_bytes(b"Once \xff")
    assert "byte 5 of" in complaint(str(tmp_path / "bad"), *output)
    (tmp_path / "good").write_text("Once upon a time")
    # In a folder, what is no text is left out, and so is the index itself.
    for _ in range(2):
        built = harness.run_cli("index", "build", str(tmp_path), *output)
        assert built.returncode == 0 and " 1 document," in built.stdout, built.stderr
        assert "no UTF-8 text: 1 file\n" in built.stderr
    (tmp_path / "precious").write_text("Once")
    assert "is not replaced" in complaint(str(tmp_path / "good"), "--output", str(tmp_path / "precious"))
    assert (tmp_path / "precious").read_text() == "Once"
    assert "cannot be written" in harness.run_cli("index", "build", str(tmp_path / "good"), "--output", "/none/index").stderr
    assert harness.run_cli("index").returncode == 2
