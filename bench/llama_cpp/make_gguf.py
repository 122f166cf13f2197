"""Converts a folder of the Llama architecture in BF16, whose tokenizer is that of Llama 3, to GGUF, for comparisons with llama.cpp.

    python make_gguf.py FOLDER OUT.gguf

The script needs the `gguf` and `numpy` packages.
"""
import json
import struct
import sys
from pathlib import Path

import gguf
import numpy as np

LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    name = name.removesuffix(".weight")
    fixed = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    if name in fixed:
        return fixed[name] + ".weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[rest]}.weight"


def rotated(rows, num_heads):
    """Returns the rows of q or k in llama.cpp's order of rotation: pairs of neighbors instead of the two halves of a head."""
    width = rows.shape[1]
    return rows.reshape(num_heads, 2, -1, width).swapaxes(1, 2).reshape(-1, width)


def main(folder, out):
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)

    tokens = [f"<{i}>" for i in range(config["vocab_size"])]
    types = [gguf.TokenType.NORMAL] * len(tokens)
    for entry, token_id in tokenizer["model"]["vocab"].items():
        tokens[token_id] = entry
    for added in tokenizer.get("added_tokens", []):
        tokens[added["id"]] = added["content"]
        types[added["id"]] = gguf.TokenType.CONTROL
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"].get("merges", [])]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges or ["a b"])
    writer.add_add_bos_token(True)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])

    path = folder / "model.safetensors"
    with open(path, "rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_bytes))
    data = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + header_bytes)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        shape = entry["shape"]
        if entry["dtype"] != "BF16":
            raise SystemExit(f"{name}: dtype {entry['dtype']}, this tool converts BF16")
        if len(shape) == 1:  # llama.cpp keeps norms in F32
            widened = data[begin:end].view(np.uint16).astype(np.uint32) << 16
            writer.add_tensor(gguf_name(name), widened.view(np.float32))
        else:
            raw = data[begin:end].reshape(shape[0], shape[1] * 2)
            heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
            for projection, field in heads.items():
                if f"self_attn.{projection}." in name:
                    raw = np.ascontiguousarray(rotated(raw, config[field]))
            writer.add_tensor(gguf_name(name), raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
