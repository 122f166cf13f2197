"""Tests the calls besides Generate: server info, tokenizing, health, reflection."""

import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2
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
    assert list(info.drafters) == ["tales-draft", "model", "prediction", "suffix", "ngram", "recycling"] and info.drafter_attached
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
    assert {method.name for method in file.service[0].method} == {"Generate", "GenerateMany", "Tokenize", "Detokenize", "GetServerInfo"}


def reflect(server, version, request):
    """Returns the answer of one version of reflection. The messages of both are the same, and the Python package has those of v1alpha."""
    method = server.channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                                          request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                                          response_deserializer=reflection_pb2.ServerReflectionResponse.FromString)
    return next(method(iter([reflection_pb2.ServerReflectionRequest(**request)]), timeout=30))


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_both_versions_of_reflection_describe_every_service(server, version):
    services = {service.name for service in reflect(server, version, {"list_services": ""}).list_services_response.service}
    assert {"tandem.v1.Generation", "grpc.health.v1.Health"} <= services
    for service in services - {"grpc.reflection.v1alpha.ServerReflection"}:
        answer = reflect(server, version, {"file_containing_symbol": service})
        files = [descriptor_pb2.FileDescriptorProto.FromString(text) for text in answer.file_descriptor_response.file_descriptor_proto]
        assert service in [f"{file.package}.{one.name}" for file in files for one in file.service]


def test_reflection_v1_answers_each_kind_of_request(server):
    by_name = reflect(server, "v1", {"file_by_filename": "tandem/v1/generate.proto"})
    assert len(by_name.file_descriptor_response.file_descriptor_proto) >= 1
    assert by_name.original_request.file_by_filename == "tandem/v1/generate.proto"
    for unknown in ({"file_by_filename": "no.proto"}, {"file_containing_symbol": "no.Such"}, {"all_extension_numbers_of_type": "no.Such"},
                    {"file_containing_extension": reflection_pb2.ExtensionRequest(containing_type="no.Such", extension_number=1)}):
        assert reflect(server, "v1", unknown).error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    numbers = reflect(server, "v1", {"all_extension_numbers_of_type": "tandem.v1.GenerateRequest"})
    assert list(numbers.all_extension_numbers_response.extension_number) == []
