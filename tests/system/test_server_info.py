"""Tests the calls besides Generate: server info, tokenizing, health, reflection."""

import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import harness
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb


@pytest.fixture(scope="module")
def server(servers):
    return servers(max_slots=3)  # no model named: the embedded pair


def test_info_says_what_is_served(server, servers, models):
    info = server.info()
    assert info.version and info.model == "tales" and info.draft_model == "tales-draft"
    assert list(info.drafters) == ["tales-draft"] and info.drafter_attached
    assert info.vocabulary_size == 4096 and info.max_context_tokens == 1024
    assert info.max_slots == 3 and info.max_draft_length >= 8
    assert info.backend == "cpu" and info.ring_transport == "shm"

    alone = servers(drafter="none").info()
    assert not alone.drafter_attached and alone.draft_model == "" and alone.ring_transport == ""


@pytest.mark.parametrize("text", [*PROMPTS, "", "\0", "<|begin_of_text|>x<|end_of_text|>", "e\u0301 \u00e9"])
def test_text_survives_tokenizing(server, text):
    ids = server.stub.Tokenize(pb.TokenizeRequest(text=text, add_special_tokens=False)).ids
    decoded = server.stub.Detokenize(pb.DetokenizeRequest(ids=ids, skip_special_tokens=False)).text
    assert decoded == text
    with_special = server.stub.Tokenize(pb.TokenizeRequest(text=text)).ids
    assert list(with_special) == [harness.BEGIN_OF_TEXT, *ids]
    assert server.stub.Detokenize(pb.DetokenizeRequest(ids=with_special, skip_special_tokens=True)).text == text.replace(
        "<|begin_of_text|>", "").replace("<|end_of_text|>", "")


def test_ids_without_a_character_become_the_replacement_character(server):
    first_byte = server.stub.Tokenize(pb.TokenizeRequest(text="🦊", add_special_tokens=False)).ids[0]
    assert server.stub.Detokenize(pb.DetokenizeRequest(ids=[first_byte])).text == "\ufffd"


@pytest.mark.parametrize("character", ["a", " ", "\n", "1", "é", "!", "Ж"])
def test_a_million_characters_tokenize_in_about_linear_time(server, character):
    def seconds(count):
        start = time.monotonic()
        ids = server.stub.Tokenize(pb.TokenizeRequest(text=character * count), timeout=60,
                                   ).ids
        assert len(ids) > 1
        return time.monotonic() - start

    seconds(1000)
    tenth = seconds(100_000)
    assert seconds(1_000_000) < 30 * tenth + 0.5


def test_health_is_serving(server):
    stub = health_pb2_grpc.HealthStub(server.channel)
    for service in ("", "tandem.v1.Generation"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as error:
        stub.Check(health_pb2.HealthCheckRequest(service="no.such.Service"), timeout=30)
    assert error.value.code() == grpc.StatusCode.NOT_FOUND


def test_reflection_describes_the_service(server):
    database = ProtoReflectionDescriptorDatabase(server.channel)
    assert "tandem.v1.Generation" in database.get_services()
    file = database.FindFileContainingSymbol("tandem.v1.Generation")
    assert file.package == "tandem.v1"
    assert {method.name for method in file.service[0].method} == {"Generate", "Tokenize", "Detokenize", "GetServerInfo"}
