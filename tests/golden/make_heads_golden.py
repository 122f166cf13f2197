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

Head i of 0, 1, ... guesses the token 2 + i places after the last one of the prompt.

`heads/tales_eagle.json` is a list of texts, each prompt alone and with what the target goes on with (argmax):

    input_ids      token ids of the text without its newest token
    next_token_id  the newest token, which is the target's argmax
    first          the eight likeliest tokens after the newest one, likeliest first
    chain          the likeliest token after the newest one, the likeliest one after that, and so on, four in all
                   token_ids  the target's ids
                   chances    by the softmax of the logits

Row j = 1, 2, ... of EAGLE's layer takes token j and the target's feature of token j - 1, at position j. It guesses the feature of
token j. There is no row 0. The rows of a chain take the guessed tokens and the guessed features.

All is computed in F32 from the weights as stored (BF16 widened), by the eager attention. Another processor may round the last
digits differently.
"""

import json
import pathlib

import safetensors.torch
import torch
import torch.nn.functional as F
import transformers
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

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
# For each prompt, how many tokens of the target follow it in the texts for EAGLE. With the second number, the text is longer than
# a page of 64 rows, and the first guesses are so likely that a server computes those after them too: it does not go on from
# unlikely ones.
FOLLOWING = ((0, 80), (0, 49), (0, 51))


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


class Eagle(torch.nn.Module):
    """The layer of a folder, made of parts of transformers. `embedding` and `output` are the target's."""

    def __init__(self, folder, embedding, output):
        super().__init__()
        config = transformers.AutoConfig.from_pretrained(folder, attn_implementation="eager")
        self.fc = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=config.bias)
        self.layers = torch.nn.ModuleList([LlamaDecoderLayer(config, 0)])
        self.layers[0].input_layernorm = torch.nn.Identity()  # the layer has none
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        self.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        self.rotary = LlamaRotaryEmbedding(config)
        self.embedding = embedding
        self.output = output
        self.eval()

    def forward(self, token_ids, features):
        """The guessed feature of the last token. `token_ids` has token 0 too, and `features` those of all tokens but the last."""
        x = self.fc(torch.cat([self.embedding(torch.tensor(token_ids[1:])), features], -1))[None]
        positions = torch.arange(1, len(token_ids))[None]
        mask = torch.full((len(features), len(features)), -torch.inf).triu(1)
        return self.layers[0](x, attention_mask=mask[None, None], position_embeddings=self.rotary(x, positions))[0, -1]

    def chances(self, feature):
        return F.softmax(self.output(feature), -1)


def likeliest(chances, count):
    best = chances.topk(count)
    return best.indices.tolist(), [round(value, 6) for value in best.values.tolist()]


@torch.no_grad()
def eagle_case(model, eagle, prompt, following):
    """What the layer guesses after a prompt with so many tokens of the target, and the token after them."""
    ids = model.generate(torch.tensor([prompt]), max_new_tokens=following + 1, do_sample=False)[0].tolist()
    assert len(ids) == len(prompt) + following + 1, "the target ends the text"
    case = dict(input_ids=ids[:-1], next_token_id=ids[-1])
    features = model.model(torch.tensor([ids[:-1]])).last_hidden_state[0]  # after the final norm
    chain = dict(token_ids=[], chances=[])
    for depth in range(4):
        feature = eagle(ids, features)
        chances = eagle.chances(feature)
        if depth == 0:
            case["first"] = dict(zip(("token_ids", "chances"), likeliest(chances, 8)))
        (token_id,), (chance,) = likeliest(chances, 1)
        chain["token_ids"].append(token_id)
        chain["chances"].append(chance)
        ids = ids + [token_id]
        features = torch.cat([features, feature[None]])
    return dict(case, chain=chain)


def write(name, expected, line_begins):
    """Writes a file in which some objects and names have lines of their own."""
    text = json.dumps(expected)
    for begin in line_begins:
        text = text.replace(f", {begin}", f",\n{begin}").replace(f"[{begin}", f"[\n{begin}")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / name).write_text(text + "\n")
    print(f"wrote {OUT / name}")


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
    write("tales.json", expected, ('{"input_ids"', '{"token_ids"', '"medusa"'))
    eagle = Eagle(TALES / "eagle", model.get_input_embeddings(), model.get_output_embeddings())
    cases = [eagle_case(model, eagle, prompt, count) for prompt, counts in zip(PROMPTS, FOLLOWING) for count in counts]
    write("tales_eagle.json", cases, ('{"input_ids"', '"next_token_id"', '"first"', '"chain"'))


if __name__ == "__main__":
    main()
