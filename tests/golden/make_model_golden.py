#!/usr/bin/env python3
"""Makes tests/golden/model: small random models and the logits that Hugging Face's transformers gives for them.

    python3 -m venv /tmp/golden
    /tmp/golden/bin/pip install torch==2.15.0 transformers==5.23.0 tokenizers==0.23.3 safetensors==0.8.0
    /tmp/golden/bin/python tests/golden/make_model_golden.py          # all
    /tmp/golden/bin/python tests/golden/make_model_golden.py NAME...  # these alone

What is checked in was made with these versions. The models span the settings that common/model reads: architectures, heads and
KV heads, head_dim, tied and untied embeddings, rope_theta, rope_scaling, eps, biases, norms of heads, F32/BF16/F16, one file and
shards, config.json of transformers 4 and 5. Each folder gets `expected.safetensors`:

    input_ids  [n]              i32
    positions  [m]              i32  which rows of the logits are kept
    logits     [m, vocabulary]  f32 (random models) or f16 (models/tales)

Logits are computed in F32 from the weights as stored (BF16 and F16 widened), by the eager attention.
"""

import json
import pathlib
import shutil
import sys

import safetensors.torch
import torch
import transformers
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "model"

BASE = dict(
    vocab_size=64, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=True,
    attention_bias=False, mlp_bias=False, bos_token_id=62, eos_token_id=63, pad_token_id=None,
)


def default_rope(theta=10000.0):
    return dict(rope_type="default", rope_theta=theta)


def llama3_rope(theta, factor, low, high, original):
    return dict(rope_type="llama3", rope_theta=theta, factor=factor, low_freq_factor=low, high_freq_factor=high,
                original_max_position_embeddings=original)


# name -> (dtype, config, how it is stored). The seed of a model is its place: new ones come last.
CASES = {
    "f32_gqa_tied": ("float32", dict(), dict(length=24)),
    "f32_mqa_untied": (
        "float32",
        dict(num_key_value_heads=1, tie_word_embeddings=False, rms_norm_eps=1e-6, rope=default_rope(500000.0)),
        dict(length=24)),
    "f32_mha_attention_bias": (
        "float32", dict(num_key_value_heads=4, attention_bias=True), dict(length=24)),
    "f32_head_dim_legacy": (
        "float32", dict(num_attention_heads=3, num_key_value_heads=1, head_dim=14), dict(length=24, legacy=True)),
    "f32_llama3_long": (
        "float32",
        dict(num_hidden_layers=1, rope=llama3_rope(500000.0, 8.0, 1.0, 4.0, 32)), dict(length=150, keep=24)),
    "f32_all_biases_sharded": (
        "float32",
        dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=False, num_key_value_heads=1),
        dict(length=24, shard="16KB")),
    "f32_mistral": ("float32", dict(architecture="mistral"), dict(length=24)),
    "bf16_llama3": (
        "bfloat16", dict(rope=llama3_rope(10000.0, 32.0, 1.0, 4.0, 64), hidden_size=32), dict(length=32)),
    "bf16_untied_sharded": (
        "bfloat16", dict(tie_word_embeddings=False, hidden_size=32, num_hidden_layers=3),
        dict(length=24, shard="12KB")),
    "bf16_everything_legacy": (
        "bfloat16",
        dict(num_attention_heads=6, num_key_value_heads=2, head_dim=6, attention_bias=True, mlp_bias=True,
             tie_word_embeddings=False, rms_norm_eps=1e-3, rope=llama3_rope(50000.0, 4.0, 1.0, 2.0, 48)),
        dict(length=80, keep=24, legacy=True)),
    "f16_mlp_bias": ("float16", dict(mlp_bias=True, num_key_value_heads=4), dict(length=24)),
    "f16_odd_sizes": (
        "float16",
        dict(vocab_size=67, hidden_size=35, intermediate_size=51, num_attention_heads=5, num_key_value_heads=5,
             head_dim=10, rope=default_rope(1000.0)),
        dict(length=70, keep=24)),
    "f32_qwen2": ("float32", dict(architecture="qwen2", rope=default_rope(1000000.0)), dict(length=24)),
    "bf16_qwen2_untied_legacy": (
        "bfloat16",
        dict(architecture="qwen2", hidden_size=32, num_hidden_layers=3, num_key_value_heads=1, tie_word_embeddings=False,
             rms_norm_eps=1e-6),
        dict(length=80, keep=24, legacy=True)),
    "f32_qwen3": (
        "float32", dict(architecture="qwen3", head_dim=16, rms_norm_eps=1e-6, rope=default_rope(1000000.0)), dict(length=24)),
    "bf16_qwen3_attention_bias_sharded": (
        "bfloat16",
        dict(architecture="qwen3", hidden_size=32, head_dim=8, num_key_value_heads=4, attention_bias=True,
             tie_word_embeddings=False),
        dict(length=80, keep=24, shard="12KB")),
    "f16_qwen3_odd_sizes_legacy": (
        "float16",
        dict(architecture="qwen3", vocab_size=67, hidden_size=35, intermediate_size=51, num_attention_heads=6,
             num_key_value_heads=3, head_dim=10, rms_norm_eps=1e-3),
        dict(length=70, keep=24, legacy=True)),
}

# architecture -> its configuration class, and the settings of BASE that the class does not know
CLASSES = {
    "llama": (transformers.LlamaConfig, ()),
    "mistral": (transformers.MistralConfig, ("attention_bias", "mlp_bias")),
    "qwen2": (transformers.Qwen2Config, ("attention_bias", "mlp_bias")),
    "qwen3": (transformers.Qwen3Config, ("mlp_bias",)),
}


def randomize(model, generator):
    """Weights that make every part count: what transformers initializes has zero biases and unit norms."""
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            values *= 0.3
        elif "norm" in name:
            values = 1 + 0.2 * values
        elif "embed_tokens" not in name:
            values *= parameter.shape[-1] ** -0.5
        parameter.data.copy_(values)


def as_transformers_4(folder):
    """Rewrites config.json to say rope_theta and rope_scaling as transformers 4 did, and for Qwen a window that is not in use."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope_type = rope.pop("rope_type")
    config["rope_scaling"] = None if rope_type == "default" else dict(type=rope_type, **rope)
    if "use_sliding_window" in config:
        config.pop("layer_types")
        config["sliding_window"] = 32
    path.write_text(json.dumps(config, indent=2) + "\n")


def logits_of(folder, input_ids):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    with torch.no_grad():
        return model(torch.tensor([input_ids])).logits[0]


def save_expected(path, input_ids, positions, logits, dtype):
    safetensors.torch.save_file(
        dict(input_ids=torch.tensor(input_ids, dtype=torch.int32),
             positions=torch.tensor(positions, dtype=torch.int32),
             logits=logits[positions].to(dtype).contiguous()), path)


def make_case(name, dtype, settings, storage, seed):
    settings = dict(BASE, **settings)
    rope = settings.pop("rope", default_rope())
    architecture = settings.pop("architecture", "llama")
    make_config, unknown = CLASSES[architecture]
    for name_of_setting in unknown:
        settings.pop(name_of_setting)
    if architecture == "mistral":
        settings["sliding_window"] = None
    config = make_config(rope_parameters=rope, **settings)
    generator = torch.Generator().manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    randomize(model, generator)
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=storage.get("shard", "1GB"))
    if storage.get("legacy"):
        as_transformers_4(folder)

    length = storage["length"]
    input_ids = torch.randint(0, settings["vocab_size"], (length,), generator=generator).tolist()
    keep = storage.get("keep", length)
    positions = sorted(torch.randperm(length, generator=generator)[:keep].tolist())
    logits = logits_of(folder, input_ids)
    save_expected(folder / "expected.safetensors", input_ids, positions, logits, torch.float32)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {size} bytes, logits in [{logits.min():.2f}, {logits.max():.2f}]")


TALE = (
    "Once upon a time there was a miller who had three sons. When he died he left them his mill, his ass, and his cat; "
    "the eldest took the mill, the second the ass, and the youngest nothing but the cat. “Alas!” said he, “my brothers "
    "may earn their bread together, but as for me, when I have eaten my cat I must die of hunger.” The cat, who heard "
    "this, said to him gravely: “Do not be troubled, master; give me a bag, and have a pair of boots made for me.”"
)


def make_tales(name):
    folder = ROOT / "models" / "tales" / name
    input_ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TALE).ids
    logits = logits_of(folder, input_ids)
    positions = list(range(0, len(input_ids), max(1, len(input_ids) // 16)))[:16]
    save_expected(OUT / f"tales_{name}.safetensors", input_ids, positions, logits, torch.float16)
    print(f"tales/{name}: {len(input_ids)} tokens, logits in [{logits.min():.2f}, {logits.max():.2f}]")


def main():
    wanted = sys.argv[1:]
    OUT.mkdir(parents=True, exist_ok=True)
    for seed, (name, (dtype, settings, storage)) in enumerate(CASES.items(), start=1):
        if not wanted or name in wanted:
            make_case(name, dtype, settings, storage, seed)
    for name in ("target", "draft"):
        if not wanted or f"tales_{name}" in wanted:
            make_tales(name)


if __name__ == "__main__":
    main()
