"""Tests that the real executable refuses bad files quickly, cheaply and by name, while streams of a good server continue."""

import json
import shutil
import struct
import subprocess

import pytest

import harness

SECONDS, MEBIBYTES = 5, 64


@pytest.fixture(scope="module")
def good(models):
    return models.random(vocabulary_size=300, hidden_size=32, layers=2, untied=True, seed=1)


@pytest.fixture(scope="module")
def neighbors(servers):
    running = harness.Neighbors(servers(max_slots=2, threads=1))
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def neighbors_are_undisturbed(neighbors):
    yield
    neighbors.check()


@pytest.fixture
def folder(good, tmp_path):
    return shutil.copytree(good, tmp_path / "model")


def refusal(*models):
    """Returns the standard error of a `tandem serve` that must not start."""
    command = [str(harness.BINARY_DIR / "tests" / "run_measured"), str(harness.BINARY_DIR / "bin" / "tandem"), "serve",
               "--listen", "127.0.0.1:0", *map(str, models)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert not any(line.startswith("ready:") for line in lines), "a bad model was served"
    result = json.loads(lines[-1])
    assert result["exit_code"] not in (0, 128 + 6, 128 + 11), f"{result} {done.stderr}"
    assert result["seconds"] < SECONDS
    assert result["peak_kib"] < MEBIBYTES * 1024
    return done.stderr[-2000:]


def check(folder, *words):
    message = refusal("--target", folder, "--drafter", "none")
    for word in words:
        assert word in message, message


# ---------------------------------------------------------------- safetensors

FILE = "model.safetensors"
NORM = "model.norm.weight"


def write_safetensors(path, header, data, header_size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text) if header_size is None else header_size))
        file.write(text)
        file.write(data)


def change(folder, edit):
    """edit(header, data) changes the dictionary, and may return other data."""
    header, start = harness.read_safetensors_header(folder / FILE)
    data = (folder / FILE).read_bytes()[start:]
    data = edit(header, data) or data
    write_safetensors(folder / FILE, header, data)


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_file_under_eight_bytes(folder, size):
    (folder / FILE).write_bytes(b"\0" * size)
    check(folder, FILE)


@pytest.mark.parametrize("header_size", [10_000, 100_000_001, 2**63, 2**64 - 1, 2**64 - 8])
def test_a_header_length_past_the_end_or_absurd(folder, header_size):
    write_safetensors(folder / FILE, {}, b"\0" * 64, header_size)
    check(folder, FILE, "header")


def test_a_header_that_is_really_over_100_mb(folder):
    with open(folder / FILE, "wb") as file:
        file.write(struct.pack("<Q", 150_000_000))
        file.truncate(8 + 150_000_000 + 64)  # sparse: zeros that nobody needs to read
    check(folder, FILE, "header")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"{\"a\": 1}", b"\xff\xfe{}", b"{\"a\":{}}"],
                         ids=["empty", "cut", "list", "null", "number", "utf8", "fieldless"])
def test_a_header_that_is_not_one(folder, text):
    write_safetensors(folder / FILE, text, b"\0" * 64)
    check(folder, FILE)


def test_deep_json_in_a_header(folder):
    write_safetensors(folder / FILE, b"{\"a\":" + b"[" * 200_000 + b"]" * 200_000 + b"}", b"\0" * 64)
    check(folder, FILE)


@pytest.mark.parametrize("name,edit", [
    ("overlapping", lambda begin, end, size: (begin - 4, end - 4)),
    ("gapped", lambda begin, end, size: (begin + 4, end + 4)),
    ("reversed", lambda begin, end, size: (end, begin)),
    ("out of range", lambda begin, end, size: (size, size + end - begin)),
    ("far out of range", lambda begin, end, size: (2**63, 2**63 + end - begin)),
    ("wrapping", lambda begin, end, size: (2**64 - 4, 2**64 - 4 + end - begin)),
    ("negative", lambda begin, end, size: (-8, end - begin - 8)),
])
def test_offsets(folder, name, edit):
    def move(header, data):
        begin, end = header[NORM]["data_offsets"]
        header[NORM]["data_offsets"] = list(edit(begin, end, len(data)))

    change(folder, move)
    check(folder, FILE)


@pytest.mark.parametrize("shape", [[31], [33], [2**62, 4], [2**32, 2**32], [-32], [32, 0], [2**63, 2]])
def test_a_shape_that_is_not_its_bytes(folder, shape):
    change(folder, lambda header, data: header[NORM].update(shape=shape))
    check(folder, FILE, NORM)


def test_a_tensor_of_another_shape_than_the_configuration_says(folder):
    change(folder, lambda header, data: header["model.layers.0.self_attn.q_proj.weight"].update(shape=[16, 64]))
    check(folder, FILE, "model.layers.0.self_attn.q_proj.weight")


@pytest.mark.parametrize("dtype", ["F128", "", "I8", "f32"])
def test_an_unknown_or_unsupported_type(folder, dtype):
    change(folder, lambda header, data: header[NORM].update(dtype=dtype))
    check(folder, FILE, NORM)


def test_duplicate_keys(folder):
    header, start = harness.read_safetensors_header(folder / FILE)
    data = (folder / FILE).read_bytes()[start:]
    text = json.dumps(header)
    text = text[:-1] + f', "{NORM}": {json.dumps(header[NORM])}}}'
    write_safetensors(folder / FILE, text.encode(), data)
    check(folder, FILE, NORM)


def test_a_missing_tensor(folder):
    # The tensor is the last one in the file, so no gap is left.
    def drop(header, data):
        begin, _ = header["lm_head.weight"]["data_offsets"]
        del header["lm_head.weight"]
        return data[:begin]

    change(folder, drop)
    check(folder, "lm_head.weight")


@pytest.mark.parametrize("keep", [0.3, 0.99])
def test_a_truncated_file(folder, keep):
    size = (folder / FILE).stat().st_size
    with open(folder / FILE, "r+b") as file:
        file.truncate(int(size * keep))
    check(folder, FILE)


def test_a_missing_file(folder):
    (folder / FILE).unlink()
    check(folder, FILE)


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "no-such.safetensors"])
def test_shard_names(folder, shard):
    header, _ = harness.read_safetensors_header(folder / FILE)
    names = [name for name in header if name != "__metadata__"]
    (folder / FILE).rename(folder / "model-00001-of-00001.safetensors")
    weight_map = {name: "model-00001-of-00001.safetensors" for name in names}
    weight_map[NORM] = shard
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    check(folder, "model.safetensors.index.json" if shard != "no-such.safetensors" else shard)


# ---------------------------------------------------------------- config.json


@pytest.mark.parametrize("field,value", [
    ("num_attention_heads", 0),
    ("num_attention_heads", -4),
    ("num_key_value_heads", 3),
    ("num_key_value_heads", 0),
    ("num_hidden_layers", 10**9),
    ("num_hidden_layers", 0),
    ("num_hidden_layers", 2.5),
    ("hidden_size", 10**12),
    ("hidden_size", "many"),
    ("intermediate_size", 0),
    ("head_dim", 7),
    ("rope_theta", float("nan")),
    ("rope_theta", float("inf")),
    ("rope_theta", -1.0),
    ("rms_norm_eps", float("nan")),
    ("vocab_size", 0),
    ("vocab_size", 299),
    ("vocab_size", 10**10),
    ("max_position_embeddings", 0),
    ("hidden_act", "gelu_new"),
    ("architectures", ["MambaForCausalLM"]),
    ("architectures", []),
    ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
    ("rope_scaling", {"rope_type": "llama3", "factor": float("nan"), "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 8192}),
    ("rope_scaling", {"rope_type": "llama3", "factor": 8.0}),
    ("rope_scaling", {"rope_type": "llama3", "factor": -8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 8192}),
])
def test_a_bad_configuration(folder, field, value):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config[field] = value
    path.write_text(json.dumps(config))
    message = refusal("--target", folder, "--drafter", "none")
    if (field, value) == ("vocab_size", 299):  # the error may name the tensor that does not fit
        assert "config.json" in message or "model.embed_tokens.weight" in message, message
    elif "nan" in str(value):  # not valid JSON, so the parser can only name the nested field
        assert "config.json" in message and (field in message or "factor" in message), message
    else:
        assert "config.json" in message and field in message, message
    named = {"architectures": "MambaForCausalLM", "rope_scaling": "yarn"}.get(field)
    if named and named in json.dumps(value):
        assert named in message


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, "{\"a\":" * 100_000, "\0\0\0"],
                         ids=["empty", "cut", "list", "deep-list", "deep-object", "zeros"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_invalid_or_deep_json(folder, name, text):
    (folder / name).write_text(text)
    check(folder, name)


def test_a_missing_configuration(folder):
    (folder / "config.json").unlink()
    check(folder, "config.json")


# ---------------------------------------------------------------- tokenizer.json


def edit_tokenizer(folder, edit):
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    edit(tokenizer)
    path.write_text(json.dumps(tokenizer))


@pytest.mark.parametrize("name,edit", [
    ("merges", lambda t: t["model"]["merges"].append("zz qq")),
    ("merges", lambda t: t["model"]["merges"].append("a")),
    ("added_tokens", lambda t: t["added_tokens"][0].update(content="")),
    ("added_tokens", lambda t: t["added_tokens"][0].update(id=-1)),
    ("added_tokens", lambda t: t["added_tokens"][0].update(id=2**31)),
    ("vocab", lambda t: t["model"]["vocab"].update(zzz=-5)),
    ("vocab", lambda t: t["model"]["vocab"].update(zzz=2**40)),
    ("vocab", lambda t: t["model"].update(vocab=[])),
    ("type", lambda t: t["model"].update(type="Unigram")),
    ("pre_tokenizer", lambda t: t.update(pre_tokenizer={"type": "NoSuchThing"})),
    ("attern", lambda t: t["pre_tokenizer"]["pretokenizers"][0].update(pattern={"Regex": "(" * 5000})),
    ("attern", lambda t: t["pre_tokenizer"]["pretokenizers"][0].update(pattern={"Regex": "("})),
    ("normalizer", lambda t: t.update(normalizer={"type": "Precompiled"})),
])
def test_a_bad_tokenizer(folder, name, edit):
    edit_tokenizer(folder, edit)
    check(folder, "tokenizer.json", name)


def test_a_pathological_pattern_is_refused_or_harmless(folder, tmp_path):
    """(a+)+$ takes exponential time in a backtracking matcher. A request that meets it must end soon."""
    edit_tokenizer(folder, lambda t: t["pre_tokenizer"]["pretokenizers"][0].update(pattern={"Regex": "(a+)+$"}))
    command = [str(harness.BINARY_DIR / "bin" / "tandem"), "generate", "--target", str(folder), "--drafter", "none",
               "--max-tokens", "1", "a" * 400 + "b"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        assert "attern" in done.stderr, done.stderr


def test_a_bad_drafter_is_refused_too(good, folder):
    """This is the first start. A wrong path or file does not repair itself."""
    (folder / FILE).write_bytes(b"\0" * 7)
    message = refusal("--target", good, "--draft", folder)
    assert "draft" in message and FILE in message, message


def test_neighbors_ran_all_the_while(neighbors):
    harness.wait_until(lambda: min(neighbors.counts) >= 3, 30, "both neighbors finished streams")


def test_the_good_model_is_served(good, tmp_path):
    """This shows that the refusals above are caused by the changes."""
    server = harness.Server(tmp_path, target=good, drafter="none")
    assert server.info().vocabulary_size == 300
    assert server.stop() == 0
