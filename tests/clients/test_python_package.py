"""Tests the Python package itself: its wheel and its archive, its types, and that its names are those of the proto."""

import dataclasses
import pathlib
import re
import sys
import tarfile
import zipfile

import pytest

import harness
import package
import tandem_client
from tandem_client import Options, Source, proto, results, server_info
from tandem_client.request import chat, parameters

EXAMPLES = sorted((package.FOLDER / "examples").glob("*.py"))
README = package.FOLDER / "README.md"
GUIDE = harness.SOURCE_DIR / "docs" / "guides" / "python.md"


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_the_messages_and_no_tests():
    names = {name for name in contents(package.installed.wheel) if not name.startswith("tandem_client-")}
    made = {"generate.binpb", "proto.pyi", "LICENSE"}
    folder = package.FOLDER / "tandem_client"
    sources = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"} - made
    assert names == {f"tandem_client/{name}" for name in made | sources} and "tandem_client/py.typed" in names
    assert pathlib.Path(tandem_client.__file__).is_relative_to(package.installed.site_packages)


def test_the_archive_of_the_sources_makes_the_same_wheel(tmp_path):
    package.run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=package.FOLDER)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {"proto/tandem/v1/generate.proto", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml"} <= names
    assert contents(package.build_wheel(archive, tmp_path / "wheel")) == contents(package.installed.wheel)


def test_the_version_is_that_of_tandem():
    cmake = (harness.SOURCE_DIR / "CMakeLists.txt").read_text()
    assert tandem_client.__version__ == re.search(r"project\(tandem VERSION ([\d.]+)", cmake)[1]


def test_the_package_and_its_examples_pass_strict_checks_of_types(tmp_path):
    mypy = ("-m", "mypy", "--strict", "--cache-dir", tmp_path)
    package.installed.run(*mypy, "--python-version", "3.10", "-p", "tandem_client", cwd=tmp_path)
    uses = tmp_path / "uses.py"
    uses.write_text("import tandem_client\n\nclient = tandem_client.Client()\n"
                    "reveal_type(client.complete('a', top_k=3).choices[0].tokens[0].logprob)\n"
                    "reveal_type(client.map(['a', [1]], return_errors=True)[0])\n"
                    "client.complete(messages=[{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}]}])\n")
    said = package.installed.run(*mypy, uses, cwd=tmp_path)
    assert re.findall(r'type is "(.*)"', said.replace("tandem_client.results.", "").replace("tandem_client.errors.", "")) == [
        "float | None", "Completion | TandemError"]
    uses.write_text("import tandem_client\n\ntandem_client.Client().complete('a', top_k='3', max_token=3)\n")
    with pytest.raises(AssertionError, match='"max_token"'):
        package.installed.run(*mypy, uses, cwd=tmp_path)
    package.installed.run(*mypy, *EXAMPLES[:1], cwd=tmp_path)


def fields(message):
    return {field.name for field in message.DESCRIPTOR.fields}


def test_every_field_of_a_request_is_an_option():
    assert set(parameters.SamplingOptions.__annotations__) == fields(proto.SamplingParams)
    assert set(parameters.SpeculationOptions.__annotations__) - {"speculate"} == fields(proto.SpeculationParams) - {"enabled"}
    assert set(parameters.DraftSampling.__annotations__) == fields(proto.DraftSampling)
    assert set(chat.Message.__annotations__) == fields(proto.ChatMessage)
    renamed = {"tools": "tools_json", "template_kwargs": "template_kwargs_json"}
    assert {renamed.get(name, name) for name in parameters.ChatOptions.__annotations__} | {"messages"} == (
        fields(proto.Chat) | {"add_special_tokens"})
    assert fields(proto.GenerateRequest) == {"request_id", "prompt", "prompt_token_ids", "chat", "sampling_params", "speculation",
                                             "model", "add_special_tokens"}
    assert {"request_id", "model"} <= set(Options.__annotations__)


@pytest.mark.parametrize("kind", [results.Usage, results.DrafterStats, results.SpeculationStats, results.Timings,
                                  server_info.DraftModelInfo, server_info.AuditDrafterStats, server_info.AuditStats,
                                  server_info.ServerLoad, server_info.ServerInfo], ids=lambda kind: kind.__name__)
def test_a_result_has_the_fields_of_its_message(kind):
    assert {field.name for field in dataclasses.fields(kind)} == fields(getattr(proto, kind.__name__))


def test_the_enumerations_are_those_of_the_proto():
    assert {f"TOKEN_SOURCE_{source.name}" for source in Source} == set(proto.TokenSource.keys())
    assert {f"FINISH_REASON_{reason.name}" for reason in results.FinishReason} == set(proto.FinishReason.keys())
    own = {field.name for field in dataclasses.fields(results.Choice)} | {"stop_string", "stop_token_id"}
    assert fields(proto.Completion) <= own


def test_stubs_of_another_proto_do_no_harm(tmp_path):
    (tmp_path / "tandem" / "v1").mkdir(parents=True)
    file = tmp_path / "tandem" / "v1" / "generate.proto"
    file.write_text('syntax = "proto3";\npackage tandem.v1;\nmessage GenerateRequest { string other = 1; }\n')
    package.run(sys.executable, "-m", "grpc_tools.protoc", f"-I{tmp_path}", f"--python_out={tmp_path}", file)
    program = ("from tandem.v1 import generate_pb2; import tandem_client; from tandem_client import proto\n"
               "generate_pb2.GenerateRequest(other='1'); print(proto.GenerateRequest(prompt='2').prompt)")
    assert package.installed.run("-c", program, cwd=tmp_path) == "2\n"


# ---------------------------------------------------------------- examples and pages


def programs(page):
    return [text for text in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL) if "tandem_client" in text]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs(server, example):
    said = package.installed.run(example, server.address)
    assert len(said) > 20 and "\x1b" not in said


@pytest.mark.parametrize("page", [README, GUIDE], ids=["readme", "guide"])
def test_the_programs_of_a_page_run(server, page, tmp_path):
    found = programs(page)
    assert found
    together = "\n\n".join(found).replace("127.0.0.1:50051", server.address)
    file = tmp_path / "program.py"
    file.write_text(together)
    said = package.installed.run(file)
    assert "of the drafted tokens were accepted" in said
