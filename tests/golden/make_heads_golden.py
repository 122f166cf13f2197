#!/usr/bin/env python3
"""Makes tests/golden/heads: what the heads of models/tales guess after prompts, with the hidden states of transformers.

    python3 -m venv /tmp/golden
    /tmp/golden/bin/pip install torch==2.15.0 transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0
    /tmp/golden/bin/python tests/golden/make_heads_golden.py

What is checked in was made with these versions. `heads/tales.json` has for `blockwise` and `medusa` a list of prompts:

    input_ids  token ids of the prompt
    heads      for each head, its four likeliest tokens after the last position, likeliest first:
               token_ids  the target's ids
               log_probs  over the tokens that the heads know

All is computed in F32 from the weights as stored (BF16 widened), by the eager attention. Head i of 0, 1, ... guesses the token
2 + i places after the last one of the prompt.
"""

import json
import pathlib

import safetensors.torch
import torch
import torch.nn.functional as F
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TALES = ROOT / "models" / "tales"
OUT = ROOT / "tests" / "golden" / "heads"

# Beginnings of tales that neither the target nor the heads were trained on.
PROMPTS = (
    # The Old Hound / A
    (4094, 316, 660, 301, 411, 444, 907, 32),
    # The Farmer And His Sons / A Farmer, being at
    (4094, 316, 529, 961, 273, 539, 1667, 382, 1242, 907, 32, 529, 961, 273, 11, 1034, 367),
    # The Goose That Laid The Golden Eggs / A Man and his Wife had the
    (4094, 316, 639, 1520, 2077, 602, 561, 346, 2753, 797, 3330, 907, 32, 2202, 267, 318, 434, 527, 342, 259),
)


@torch.no_grad()
def guesses_of(family, hidden, output):
    """What each head guesses from `hidden` [hidden size]. `output` is the target's output matrix."""
    config = json.loads((TALES / family / "config.json").read_text())
    tensors = safetensors.torch.load_file(TALES / family / "model.safetensors")
    token_map = tensors.get("token_map", torch.arange(config["vocab_size"]))
    guesses = []
    for head in range(config["num_heads"]):
        x = hidden
        for layer in range(config["num_hidden_layers"]):
            name = f"blocks.{head}.layers.{layer}"
            x = x + F.silu(F.linear(x, tensors[f"{name}.weight"].float(), tensors[f"{name}.bias"].float()))
        matrix = output if config["original_lm_head"] else tensors[f"lm_heads.{head}.weight"].float()
        best = F.log_softmax(F.linear(x, matrix), -1).topk(4)
        guesses.append(dict(token_ids=token_map[best.indices].tolist(), log_probs=[round(value, 6) for value in best.values.tolist()]))
    return guesses


def main():
    model = transformers.AutoModelForCausalLM.from_pretrained(TALES / "target", dtype=torch.float32, attn_implementation="eager")
    model.eval()
    output = model.get_output_embeddings().weight
    expected = {}
    for family in ("blockwise", "medusa"):
        expected[family] = []
        for prompt in PROMPTS:
            with torch.no_grad():
                hidden = model.model(torch.tensor([prompt])).last_hidden_state[0, -1]  # after the final norm
            expected[family].append(dict(input_ids=list(prompt), heads=guesses_of(family, hidden, output)))
    OUT.mkdir(parents=True, exist_ok=True)
    text = json.dumps(expected)
    for begin in ('{"input_ids"', '{"token_ids"', '"medusa"'):  # lines of their own
        text = text.replace(f", {begin}", f",\n{begin}").replace(f"[{begin}", f"[\n{begin}")
    (OUT / "tales.json").write_text(text + "\n")
    print(f"wrote {OUT / 'tales.json'}")


if __name__ == "__main__":
    main()
