"""Chooses the layers that a target leaves out when it drafts for itself, and writes a folder for --heads.

Layers are left out one after the other: each time the one without which the target's argmax changes least, along the target's own
greedy continuations of some prompts. For each number of layers, the program prints how often the argmax stays, and the speed that
this gives with the best draft length, if a pass costs as much as reading its weights and more rows cost nothing (Leviathan et al.
2023, Theorem 3.8). As in the server, a row attends to the whole target's keys and values of the rows before it.

At the end, it prints by position of a draft how often the target accepts what it drafts without the chosen layers, after prompts that
did not choose them.
"""
import argparse
import json
import pathlib
import sys
import time

import torch
import transformers
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train_pair"))
import acceptance  # noqa: E402

PROMPTS = ("Once upon a time there was a", "The capital of France is", "To make a good soup, you need", "def fibonacci(n):",
           "In the year 1905, Albert Einstein", "The main difference between a cat and a dog is")
HELD_OUT_PROMPTS = ("The old woman said to her son", "The largest ocean on Earth is", "Before you plant a tree, you should",
                    "class Stack:", "After the war, the people of the city", "Most birds can fly because")


def attend(attention, x, angles, rows, sees, own):
    """Attention of rows x [1, count, hidden], each in a branch of its own.

    They attend to the whole target's keys and values of the text, `rows`, as far as `sees` [count, length] says, and to those of
    their branches, which are added to `own`.
    """
    def split(product, norm):
        heads = product(x).view(*x.shape[:2], -1, attention.head_dim)
        return (norm(heads) if norm else heads).transpose(1, 2)

    q = split(attention.q_proj, getattr(attention, "q_norm", None))
    k = split(attention.k_proj, getattr(attention, "k_norm", None))
    q, k = apply_rotary_pos_emb(q, k, *angles)
    repeats = q.shape[1] // k.shape[1]
    k, v, keys, values = (part.repeat_interleave(repeats, 1) for part in (k, split(attention.v_proj, None), rows.keys, rows.values))
    own.append((k, v))
    scores = (q @ keys.transpose(-1, -2)).masked_fill(~sees, -torch.inf)
    own_scores = torch.stack([(q * k).sum(-1) for k, _ in own], -1)
    weights = (torch.cat([scores, own_scores], -1) * attention.scaling).float().softmax(-1).to(x.dtype)
    mixed = weights[..., : keys.shape[2]] @ values
    for i, (_, v) in enumerate(own):
        mixed = mixed + weights[..., keys.shape[2] + i, None] * v
    return attention.o_proj(mixed.transpose(1, 2).reshape(*x.shape[:2], -1))


class Branches:
    """Continuations of the beginnings of one text, which end before `places`, by the model without some layers."""

    def __init__(self, model, cache, places, skipped=()):
        self._model, self._cache, self._places, self._skipped = model, cache, places, skipped
        self._sees = torch.arange(cache.get_seq_length(), device=places.device) < places[:, None]
        self._own = [[] for _ in model.model.layers]

    def step(self, tokens):
        """Takes the next token of each branch, and returns the logits after it."""
        base = self._model.model
        x = base.embed_tokens(tokens)[None]
        angles = base.rotary_emb(x, self._places[None])
        self._places = self._places + 1
        for i, (layer, own) in enumerate(zip(base.layers, self._own)):
            if i not in self._skipped:
                x = x + attend(layer.self_attn, layer.input_layernorm(x), angles, self._cache.layers[i], self._sees, own)
                x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self._model.lm_head(base.norm(x[0]))


def places_of(ids, begin):
    """The places whose tokens the prompt's continuation follows: the prompt's last one, and all but the last one after it."""
    return torch.arange(begin - 1, ids.shape[1] - 1, device=ids.device)


def agreement(model, texts, skipped):
    """How often the argmax without some layers is the token that follows in the texts, which are (ids, length of the prompt, cache)."""
    right = total = 0
    for ids, begin, cache in texts:
        guesses = Branches(model, cache, places_of(ids, begin), skipped).step(ids[0, begin - 1 : -1]).argmax(-1)
        right += (guesses == ids[0, begin:]).sum().item()
        total += len(guesses)
    return right / total


def by_position(model, texts, skipped, depth, generator=None):
    """The number of drafts of `depth` tokens without some layers, which begin after each token of the texts, and their chances."""
    chances, count = acceptance.Chances(depth), 0
    for ids, begin, cache in texts:
        places = places_of(ids, begin)
        draft, target = (Branches(model, cache, places, without).step for without in (skipped, ()))
        acceptance.follow(draft, target, ids[0, begin - 1 : -1], chances, generator)
        count += len(places)
    return count, chances


def best_speed(chance, cost):
    """Speed over plain decoding with the best draft length, and that length."""
    speeds = []
    for length in range(1, 17):
        tokens = length + 1 if chance == 1 else (1 - chance ** (length + 1)) / (1 - chance)
        speeds.append((tokens / (cost * length + 1), length))
    return max(speeds)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", required=True, help="folder of the target")
    add("--out", required=True, help="folder to write, with config.json")
    add("--prompts", help="file with a prompt in each line (default: six short ones)")
    add("--held-out", help="file with other prompts, after which acceptance is measured (default: six short ones)")
    add("--draft-length", type=int, default=6, help="positions of a draft whose acceptance is reported (default: %(default)s)")
    add("--tokens", type=int, default=64, help="tokens that follow each prompt (default: %(default)s)")
    add("--most", type=int, help="largest number of layers that are left out (default: two thirds)")
    add("--device", default="cpu", choices=("cpu", "cuda"), help="where to compute (default: %(default)s)")
    return parser.parse_args()


def continuations(model, tokenizer, prompts, count, **choice):
    """Returns (ids, length of the prompt, cache) for each of some prompts that the target continues, by up to `count` tokens."""
    texts = []
    for prompt in prompts:
        if not prompt.strip():
            continue
        ids = tokenizer(prompt, return_tensors="pt").input_ids.to(model.device)
        whole = model.generate(ids, max_new_tokens=count, **choice)
        if whole.shape[1] > ids.shape[1]:
            texts.append((whole, ids.shape[1], model(whole, use_cache=True).past_key_values))
    if not texts:
        raise SystemExit("the target says nothing after these prompts (want others in --prompts and --held-out)")
    return texts


def read_prompts(path, default):
    return pathlib.Path(path).read_text(encoding="utf-8").splitlines() if path else default


def report_held_out(model, tokenizer, args, skipped):
    """Prints how much of drafts without some layers is accepted after prompts that did not choose the layers."""
    prompts = read_prompts(args.held_out, HELD_OUT_PROMPTS)
    for name, source, choice in (("greedy", "greedy text", {"do_sample": False}),
                                 ("sampled", "sampled text", {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0})):
        torch.manual_seed(1)
        texts = continuations(model, tokenizer, prompts, args.tokens, **choice)
        generator = torch.Generator(model.device).manual_seed(1) if name == "sampled" else None
        count, chances = by_position(model, texts, skipped, args.draft_length, generator)
        acceptance.report(f"{source} after held-out prompts", "position", {"samples": count, name: chances})


@torch.no_grad()
def main():
    args = parse_arguments()
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(args.target, dtype=dtype).to(args.device).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.target)
    layers = model.model.layers
    most = args.most or 2 * len(layers) // 3
    if not 1 <= most < len(layers):
        raise SystemExit(f"--most: got {most}, want 1 to {len(layers) - 1} for a target of {len(layers)} layers")
    texts = continuations(model, tokenizer, read_prompts(args.prompts, PROMPTS), args.tokens, do_sample=False)

    bytes_of_layer = sum(parameter.numel() for parameter in layers[0].parameters())
    bytes_of_output = model.lm_head.weight.numel()
    whole = len(layers) * bytes_of_layer + bytes_of_output
    everything = agreement(model, texts, set())
    print(f"with all layers: the argmax stays in {everything:.3f}", flush=True)
    skipped, found, begin = [], [], time.monotonic()
    steps = sum(len(layers) - i for i in range(most))
    for i in range(most):
        rest = [layer for layer in range(len(layers)) if layer not in skipped]
        chances = {layer: agreement(model, texts, {*skipped, layer}) for layer in rest}
        skipped.append(max(chances, key=chances.get))
        cost = (whole - len(skipped) * bytes_of_layer) / whole
        speed, length = best_speed(chances[skipped[-1]], cost)
        found.append((speed, sorted(skipped)))
        done = sum(len(layers) - j for j in range(i + 1))
        left = (time.monotonic() - begin) * (steps - done) / done
        print(f"without {' '.join(map(str, sorted(skipped)))}: the argmax stays in {chances[skipped[-1]]:.3f}, a step costs {cost:.2f}, "
              f"speed {speed:.2f} at draft length {length}; {left:.0f} s left", flush=True)
    speed, best = max(found)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps({"num_hidden_layers": len(layers), "skipped_layers": best}, indent=2) + "\n")
    report_held_out(model, tokenizer, args, best)
    print(f"wrote {out}, which leaves out layers {' '.join(map(str, best))}" + ("" if speed > 1 else " (no gain is expected)"))


if __name__ == "__main__":
    main()
