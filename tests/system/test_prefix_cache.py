"""Tests the prefix cache: a shared beginning is computed once for each tenant, and changes no output."""

import os
import signal
import time

import grpc
import pytest

import harness
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb

PAGE = 64
PREFIX = 8 * PAGE  # tokens
GREEDY = dict(temperature=0, max_tokens=40, ignore_eos=True)
REPRODUCIBLE = dict(seed=11, max_tokens=40, ignore_eos=True)


def generate(server, ids, tenant=None, **options):
    metadata = [("tandem-tenant", tenant)] if tenant else []
    return harness.Output.read(server.stub.Generate(harness.request(ids, **options), timeout=120, metadata=metadata))


def cached(output):
    return output.completion.usage.cached_prompt_tokens


def cached_by_drafter(output):
    return output.completion.usage.cached_draft_tokens


@pytest.fixture(scope="module")
def text(servers):
    """Returns the token ids of the book that all prompts are cut from."""
    book = servers(max_slots=4).stub.Tokenize(pb.TokenizeRequest(text=" ".join(PROMPTS) * 40, add_special_tokens=False)).ids
    return list(book)


def prompts(text, number):
    """Returns a beginning of PREFIX tokens that no other test uses, with two endings."""
    beginning = [harness.BEGIN_OF_TEXT, 100 + number, *text[:PREFIX - 2]]
    return beginning + text[50:73], beginning + text[300:330]


@pytest.mark.parametrize("number, options", enumerate([GREEDY, REPRODUCIBLE, dict(GREEDY, enabled=False)]),
                         ids=["greedy", "reproducible", "plain"])
def test_second_request_takes_the_shared_prefix_and_says_the_same(servers, text, number, options):
    server = servers(max_slots=4)
    one, other = prompts(text, number)
    assert cached(generate(server, one, **options)) == 0
    hit = generate(server, other, **options)
    assert cached(hit) == PREFIX
    computed = generate(server, other, tenant=f"nobody else {number}", **options)
    assert cached(computed) == 0
    assert hit.token_ids == computed.token_ids


def test_the_drafter_takes_the_shared_prefix_too(servers, text):
    server = servers(max_slots=4)
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
    one, other = prompts(text, 50)
    drafted = dict(temperature=0, ignore_eos=True, draft_length=4)
    first = generate(server, one, **drafted, max_tokens=150)
    assert cached_by_drafter(first) == 0
    before = server.info().load.num_cached_draft_tokens
    hit = generate(server, other, **drafted, max_tokens=40)
    assert cached_by_drafter(hit) == cached(hit) == PREFIX
    assert server.info().load.num_cached_draft_tokens == before + PREFIX
    assert hit.completion.speculation.num_drafts > 0
    computed = generate(server, other, tenant="nobody else 50", **drafted, max_tokens=40)
    assert cached_by_drafter(computed) == cached(computed) == 0
    assert hit.token_ids == computed.token_ids
    # Whole pages of the output are found too, including accepted drafts.
    conversation = one + list(first.token_ids) + text[:10]
    second = generate(server, conversation, **drafted, max_tokens=40)
    assert cached_by_drafter(second) > PREFIX and cached_by_drafter(second) % PAGE == 0
    assert second.token_ids == generate(server, conversation, tenant="nobody else 50", **drafted, max_tokens=40).token_ids
    # A request without drafts never reaches the drafter.
    plain = generate(server, other, temperature=0, max_tokens=40, ignore_eos=True, draft_length=0)
    assert cached(plain) > 0 and cached_by_drafter(plain) == 0
    assert plain.token_ids == hit.token_ids


def test_tenants_share_nothing_with_each_other(servers, text):
    server = servers(max_slots=4)
    one, other = prompts(text, 10)
    assert cached(generate(server, one, tenant="a", **GREEDY)) == 0
    assert cached(generate(server, other, tenant="b", **GREEDY)) == 0
    assert cached(generate(server, other, **GREEDY)) == 0
    assert cached(generate(server, other, tenant="a", **GREEDY)) == PREFIX
    assert cached(generate(server, one, tenant="b", **GREEDY)) == PREFIX


def test_output_is_found_as_part_of_the_next_prompt(servers, text):
    server = servers(max_slots=4)
    one, _ = prompts(text, 20)
    first = generate(server, one, temperature=0, max_tokens=150, ignore_eos=True)
    conversation = one + list(first.token_ids) + text[:10]
    second = generate(server, conversation, **GREEDY)
    assert cached(second) == (len(one) + 150 - 1) // PAGE * PAGE  # the last token is never fed
    assert second.token_ids == generate(server, conversation, tenant="nobody else", **GREEDY).token_ids


def test_pages_are_forgotten_when_others_need_them_and_come_back(servers, text):
    roomy = servers(max_slots=4)
    page_bytes = roomy.info().load.kv_page_tokens * 6 * 1024  # the embedded target's rows
    # The pool holds one and a half prompts at the same time. Eight prompts are sent again and again, up to four at a time.
    tight = servers(max_slots=4, kv_cache_bytes=14 * page_bytes)
    assert tight.info().load.num_kv_pages == 14
    requests = [(prompts(text, 30 + i)[0], GREEDY) for i in range(8)]
    want = [output.token_ids for output in roomy.generate_all(requests, 1)]
    for concurrency in (1, 3, 4):
        assert [output.token_ids for output in tight.generate_all(requests, concurrency)] == want
    harness.wait_until(lambda: tight.info().load.num_free_kv_pages == 14, 30, "all pages are free")


@pytest.mark.parametrize("num_pages", [14, 8])
def test_the_youngest_waits_when_pages_run_out_and_nothing_of_its_output_changes(servers, text, num_pages):
    page_bytes = servers(max_slots=4).info().load.kv_page_tokens * 6 * 1024
    tight = servers(max_slots=4, kv_cache_bytes=num_pages * page_bytes)
    assert tight.info().load.num_kv_pages == num_pages
    # Each request has three pages at first and eight at last. The four requests need 32 pages, and there are less than half or a quarter
    # of them. With a quarter, two begin together and lack a page after 84 tokens. The one that continues has all pages in the end.
    options = [dict(temperature=0), dict(seed=3), dict(seed=4, temperature=0.7), dict(temperature=0, enabled=False)]
    requests = [([harness.BEGIN_OF_TEXT, 200 + i, *text[i:170 + i]], dict(option, max_tokens=320, ignore_eos=True))
                for i, option in enumerate(options)]
    want = [output.token_ids for output in servers(max_slots=4).generate_all(requests, 1)]
    before = tight.info().load.num_preemptions

    def one_waited():
        """Returns false if the requests came so late after one another that there were always enough pages."""
        assert [output.token_ids for output in tight.generate_all(requests, 4)] == want
        return tight.info().load.num_preemptions > before

    harness.wait_until(one_waited, 60, "a request waits for pages")
    harness.wait_until(lambda: tight.info().load.num_free_kv_pages == num_pages, 30, "all pages are free")


def test_a_prompt_that_can_never_fit_is_refused_at_once(servers, text):
    page_bytes = servers(max_slots=4).info().load.kv_page_tokens * 6 * 1024
    tight = servers(max_slots=4, kv_cache_bytes=8 * page_bytes)
    too_long = [harness.BEGIN_OF_TEXT, *text[:8 * PAGE - 1]]
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as error:
        generate(tight, too_long, **GREEDY)
    assert time.monotonic() - began < 20  # the call's own deadline is far later
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.value.details() == (f"prompt_token_ids: got {8 * PAGE} tokens, allowed: at most {8 * PAGE - 1} tokens, "
                                     "which is what the KV cache holds with one more (--kv-cache-bytes)")
    assert "grpc-retry-pushback-ms" not in dict(error.value.trailing_metadata()), "it need not come back"
    # One token less fits, with one token of output.
    assert len(generate(tight, too_long[:-1], **GREEDY).token_ids) == 1
    # If the model itself holds no more, this is an error of the client.
    with pytest.raises(grpc.RpcError) as error:
        generate(servers(max_slots=4), too_long + too_long, **GREEDY)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_the_prefixes_of_a_lost_worker_are_gone(servers, text):
    server = servers(max_slots=5)  # a separate server, because other tests rely on their cached prefixes
    one, other = prompts(text, 60)
    drafted = dict(temperature=0, ignore_eos=True, draft_length=4)

    def lose(name, losses):
        before = losses(server.info().load)
        os.kill(server.child(name), signal.SIGKILL)
        harness.wait_until(lambda: losses(server.info().load) > before, 30, "the loss is noticed")

    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
    generate(server, one, **drafted, max_tokens=150)
    hit = generate(server, other, **drafted, max_tokens=40)
    assert cached(hit) == cached_by_drafter(hit) == PREFIX
    lose("tandem-verifier", lambda load: load.num_verifier_losses)
    computed = generate(server, other, **drafted, max_tokens=40)
    assert (cached(computed), cached_by_drafter(computed)) == (0, PREFIX), "the drafter has kept its own"
    assert computed.token_ids == hit.token_ids
    lose("tandem-draft", lambda load: load.num_drafter_losses)
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached again")
    again = generate(server, other, **drafted, max_tokens=150)
    assert (cached(again), cached_by_drafter(again)) == (PREFIX, 0)
    assert again.completion.speculation.num_drafts > 0
    assert again.token_ids[:40] == hit.token_ids
