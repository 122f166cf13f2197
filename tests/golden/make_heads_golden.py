#!/usr/bin/env python3
r"""Makes tests/golden/heads: what the heads of models/tales guess after prompts, with the hidden states of transformers.

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

`heads/tales_layer_skip.json` is the same for the target without the layers that `models/tales/layer_skip` leaves out. The rows of the
text have the keys and values of the whole target.

`heads/tales_pass.json` is the same for the look-ahead embeddings of `models/tales/pass`. The chain has the likeliest token after the
newest one, and those of the rows that follow with look-ahead embeddings 0, 1, ... in the place of tokens.

`heads/tales_eagle3.json` is the same for a layer of EAGLE-3 with random weights, which the tests write too. Here, make_random_model
writes it:

    build/cpu-release/tests/make_random_model /tmp/eagle3 --eagle --eagle3 --hidden-size 512 --vocabulary-size 4096 \
        --heads 8 --kv-heads 4 --head-size 64 --intermediate-size 96 --dtype f32 --embedding-scale 0.2 \
        --draft-vocabulary 600 --layer-ids 1 2 4
    /tmp/golden/bin/python tests/golden/make_heads_golden.py --eagle3 /tmp/eagle3

All is computed in F32 from the weights as stored (BF16 widened), by the eager attention. Another processor may round the last
digits differently.
"""

import argparse
import copy
import json
import pathlib

import safetensors.torch
import torch
import torch.nn.functional as F
import transformers
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

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

    token_map = torch.arange(4096)

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

    def begin(self, outputs):
        """What the rows of the text read, from the target's outputs."""
        return outputs.last_hidden_state[0]  # after the final norm

    def forward(self, token_ids, features):
        """The guessed feature of the last token. `token_ids` has token 0 too, and `features` those of all tokens but the last."""
        x = self.fc(torch.cat([self.embedding(torch.tensor(token_ids[1:])), features], -1))[None]
        positions = torch.arange(1, len(token_ids))[None]
        mask = torch.full((len(features), len(features)), -torch.inf).triu(1)
        return self.layers[0](x, attention_mask=mask[None, None], position_embeddings=self.rotary(x, positions))[0, -1]

    def chances(self, feature):
        return F.softmax(self.output(feature), -1)


class Eagle3(torch.nn.Module):
    """A layer of EAGLE-3. A row's state is `fc` of the target's states, or a guess (Li et al. 2025, section 3)."""

    def __init__(self, folder, embedding):
        super().__init__()
        settings = json.loads((folder / "config.json").read_text())
        # The list begins with 1, so the states leave these layers.
        self.layer_ids = [layer + 1 for layer in settings["eagle_config"]["eagle_aux_hidden_state_layer_ids"]]
        config = transformers.LlamaConfig(attn_implementation="eager", **{name: value for name, value in settings.items()
                                                                          if name not in ("architectures", "model_type")})
        hidden = config.hidden_size
        self.fc = torch.nn.Linear(len(self.layer_ids) * hidden, hidden, bias=False)
        self.midlayer = LlamaDecoderLayer(config, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            product = getattr(self.midlayer.self_attn, name)
            setattr(self.midlayer.self_attn, name, torch.nn.Linear(2 * hidden, product.out_features, bias=False))
        self.midlayer.hidden_norm = LlamaRMSNorm(hidden, config.rms_norm_eps)
        self.norm = LlamaRMSNorm(hidden, config.rms_norm_eps)
        self.lm_head = torch.nn.Linear(hidden, settings["draft_vocab_size"], bias=False)
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        offsets = tensors.pop("d2t")
        self.token_map = torch.arange(len(offsets)) + offsets
        self.load_state_dict(tensors)
        self.rotary = LlamaRotaryEmbedding(config)
        self.embedding = embedding
        self.eval()

    def begin(self, outputs):
        return self.fc(torch.cat([outputs.hidden_states[layer][0] for layer in self.layer_ids], -1))

    def forward(self, token_ids, states):
        layer = self.midlayer
        embedded = layer.input_layernorm(self.embedding(torch.tensor(token_ids[1:])))
        joined = torch.cat([embedded, layer.hidden_norm(states)], -1)[None]
        positions = torch.arange(1, len(token_ids))[None]
        mask = torch.full((len(states), len(states)), -torch.inf).triu(1)
        attended = layer.self_attn(joined, position_embeddings=self.rotary(joined, positions), attention_mask=mask[None, None])[0][0]
        states = states + attended
        return (states + layer.mlp(layer.post_attention_layernorm(states)))[-1]

    def chances(self, state):
        return F.softmax(self.lm_head(self.norm(state)), -1)


class LayerSkip:
    """The target without some layers."""

    token_map = torch.arange(4096)

    def __init__(self, folder, model):
        settings = json.loads((folder / "config.json").read_text())
        self.model = model
        self.kept = [layer for layer in range(settings["num_hidden_layers"]) if layer not in settings["skipped_layers"]]

    def embedded(self, token_ids):
        return self.model.model.embed_tokens(torch.tensor(token_ids))

    def begin(self, outputs):
        self.cache = outputs.past_key_values
        self.num_rows = self.cache.get_seq_length()
        return torch.zeros(self.num_rows, 1)  # the rows of a chain need no states

    def forward(self, token_ids, states):
        """The rows of the newest token and of the guesses, all with a copy of the text's keys and values."""
        cache = copy.deepcopy(self.cache)
        x = self.embedded(token_ids[self.num_rows :])[None]
        positions = torch.arange(self.num_rows, len(token_ids))[None]
        mask = torch.full((x.shape[1], len(token_ids)), -torch.inf).triu(self.num_rows + 1)[None, None]
        embeddings = self.model.model.rotary_emb(x, positions)
        for index in self.kept:
            x = self.model.model.layers[index](x, attention_mask=mask, position_embeddings=embeddings, past_key_values=cache)
        return x[0, -1]

    __call__ = forward

    def chances(self, state):
        return F.softmax(self.model.lm_head(self.model.model.norm(state)), -1)


class LookAhead(LayerSkip):
    """The whole target, with look-ahead embeddings in the place of guessed tokens."""

    def __init__(self, folder, model):
        self.model = model
        self.kept = range(len(model.model.layers))
        self.table = safetensors.torch.load_file(folder / "model.safetensors")["lookahead.weight"].float()

    def embedded(self, token_ids):
        return torch.cat([super().embedded(token_ids[:1]), self.table[: len(token_ids) - 1]])


def likeliest(eagle, chances, count):
    best = chances.topk(count)
    return eagle.token_map[best.indices].tolist(), [round(value, 6) for value in best.values.tolist()]


@torch.no_grad()
def eagle_case(model, eagle, prompt, following):
    """What the layer guesses after a prompt with so many tokens of the target, and the token after them."""
    ids = model.generate(torch.tensor([prompt]), max_new_tokens=following + 1, do_sample=False)[0].tolist()
    assert len(ids) == len(prompt) + following + 1, "the target ends the text"
    case = dict(input_ids=ids[:-1], next_token_id=ids[-1])
    features = eagle.begin(model.model(torch.tensor([ids[:-1]]), output_hidden_states=True, use_cache=True))
    chain = dict(token_ids=[], chances=[])
    for depth in range(4):
        feature = eagle(ids, features)
        chances = eagle.chances(feature)
        if depth == 0:
            case["first"] = dict(zip(("token_ids", "chances"), likeliest(eagle, chances, 8)))
        (token_id,), (chance,) = likeliest(eagle, chances, 1)
        chain["token_ids"].append(token_id)
        chain["chances"].append(chance)
        ids = ids + [token_id]
        features = torch.cat([features, feature[None, : features.shape[1]]])
    return dict(case, chain=chain)


def write(name, expected, line_begins):
    """Writes a file in which some objects and names have lines of their own."""
    text = json.dumps(expected)
    for begin in line_begins:
        text = text.replace(f", {begin}", f",\n{begin}").replace(f"[{begin}", f"[\n{begin}")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / name).write_text(text + "\n")
    print(f"wrote {OUT / name}")


def write_eagle(name, model, eagle):
    cases = [eagle_case(model, eagle, prompt, count) for prompt, counts in zip(PROMPTS, FOLLOWING) for count in counts]
    write(name, cases, ('{"input_ids"', '"next_token_id"', '"first"', '"chain"'))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eagle3", type=pathlib.Path, help="folder of a layer of EAGLE-3; only tales_eagle3.json is made")
    args = parser.parse_args()
    model = transformers.AutoModelForCausalLM.from_pretrained(TALES / "target", dtype=torch.float32, attn_implementation="eager")
    model.eval()
    if args.eagle3:
        write_eagle("tales_eagle3.json", model, Eagle3(args.eagle3, model.get_input_embeddings()))
        return
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
    write_eagle("tales_eagle.json", model, eagle)
    write_eagle("tales_layer_skip.json", model, LayerSkip(TALES / "layer_skip", model))
    write_eagle("tales_pass.json", model, LookAhead(TALES / "pass", model))


if __name__ == "__main__":
    main()
