"""Makes a model that says given texts: real weights for the real server, with an output that a test knows.

The model is one layer of zeros. So the last hidden state is the embedding of the last token, which has one dimension of its own, and the
output matrix maps each token to the one that follows it. A text is a list of pieces, and each piece is a token.
"""

import json
import struct

HIDDEN, HEAD, INNER = 384, 64, 64
NUM_BYTES = 256


def bf16(number):
    return struct.pack("<f", number)[2:]


def byte_entries():
    """Returns the 256 entries of a byte-level vocabulary, in the order of their bytes (GPT-2's alphabet)."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    entries, hidden = {}, 0
    for byte in range(NUM_BYTES):
        if byte in shown:
            entries[byte] = chr(byte)
        else:
            entries[byte] = chr(NUM_BYTES + hidden)
            hidden += 1
    return [entries[byte] for byte in range(NUM_BYTES)]


class Matrix:
    """Zeros, apart from the entries that are set."""

    def __init__(self, rows, columns):
        self.shape = [rows, columns]
        self.bytes = bytearray(2 * rows * columns)

    def set(self, row, column, value):
        at = 2 * (row * self.shape[1] + column)
        self.bytes[at:at + 2] = bf16(value)


def write(folder, texts, template):
    """Writes a model folder. `texts` maps a special token, with which a prompt ends, to the pieces that follow it, up to the end of the
    text. All pieces differ from each other."""
    folder.mkdir(parents=True)
    pieces = [piece for text in texts.values() for piece in text]
    assert len(set(pieces)) == len(pieces), "each piece is a token of its own"
    entries = byte_entries()
    added = ["<|begin|>", "<|end|>", *texts, *(piece for piece in pieces if piece not in entries)]
    added_ids = {text: NUM_BYTES + i for i, text in enumerate(added)}
    ids = {**{entry: byte for byte, entry in enumerate(entries)}, **added_ids}
    begin, end = ids["<|begin|>"], ids["<|end|>"]
    num_tokens = NUM_BYTES + len(added)
    assert num_tokens <= HIDDEN
    successor = {}
    for start, text in texts.items():
        chain = [start, *text, "<|end|>"]
        successor.update((ids[one], ids[next_one]) for one, next_one in zip(chain, chain[1:]))
    write_tokenizer(folder, added_ids, specials={"<|begin|>", "<|end|>", *texts})
    (folder / "chat_template.jinja").write_text(template)
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=HIDDEN, head_dim=HEAD, intermediate_size=INNER,
                  num_attention_heads=1, num_key_value_heads=1, num_hidden_layers=1, max_position_embeddings=4096, rms_norm_eps=1e-5,
                  rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=False, vocab_size=num_tokens, bos_token_id=begin,
                  eos_token_id=end, torch_dtype="bfloat16")
    (folder / "config.json").write_text(json.dumps(config))
    embeddings, head = Matrix(num_tokens, HIDDEN), Matrix(num_tokens, HIDDEN)
    for token in range(num_tokens):
        embeddings.set(token, token, 1)
        head.set(successor.get(token, end), token, 4)
    write_weights(folder, embeddings, head)


def write_tokenizer(folder, ids, specials):
    added = [dict(id=number, content=text, single_word=False, lstrip=False, rstrip=False, normalized=False, special=text in specials)
             for text, number in ids.items()]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    tokenizer = dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=level,
                     post_processor=None, decoder=level,
                     model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                                fuse_unk=False, byte_fallback=False, merges=[],
                                vocab={entry: byte for byte, entry in enumerate(byte_entries())}))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(bos_token="<|begin|>", eos_token="<|end|>")))


def write_weights(folder, embeddings, head):
    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": embeddings, "lm_head.weight": head}
    for name, rows, columns in [("self_attn.q_proj", HEAD, HIDDEN), ("self_attn.k_proj", HEAD, HIDDEN), ("self_attn.v_proj", HEAD, HIDDEN),
                                ("self_attn.o_proj", HIDDEN, HEAD), ("mlp.gate_proj", INNER, HIDDEN), ("mlp.up_proj", INNER, HIDDEN),
                                ("mlp.down_proj", HIDDEN, INNER)]:
        tensors[layer + name + ".weight"] = Matrix(rows, columns)
    for name in ["model.norm", layer + "input_layernorm", layer + "post_attention_layernorm"]:
        norm = Matrix(HIDDEN, 1)
        for row in range(HIDDEN):
            norm.set(row, 0, 1)
        norm.shape = [HIDDEN]
        tensors[name + ".weight"] = norm
    header, data = {}, b""
    for name, matrix in tensors.items():
        header[name] = dict(dtype="BF16", shape=matrix.shape, data_offsets=[len(data), len(data) + len(matrix.bytes)])
        data += matrix.bytes
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
