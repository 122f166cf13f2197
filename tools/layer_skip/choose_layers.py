"""Chooses the layers that a target leaves out when it drafts for itself, and writes a folder for --heads.

Layers are left out one after the other: each time the one without which the target's argmax changes least, along the target's own
greedy continuations of some prompts. For each number of layers, the program prints how often the argmax stays, and the speed that
this gives with the best draft length, if a pass costs as much as reading its weights and more rows cost nothing (Leviathan et al.
2023, Theorem 3.8). As in the server, a row attends to the whole target's keys and values of the rows before it.
"""
import argparse
import json
import pathlib
import time

import torch
import transformers
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

PROMPTS = ("Once upon a time there was a", "The capital of France is", "To make a good soup, you need", "def fibonacci(n):",
           "In the year 1905, Albert Einstein", "The main difference between a cat and a dog is")


def attend(attention, x, angles, rows):
    """Attention of each row of x to the whole target's keys and values of the rows before it, and to its own."""
    def split(product, norm):
        heads = product(x).view(*x.shape[:2], -1, attention.head_dim)
        return (norm(heads) if norm else heads).transpose(1, 2)

    q = split(attention.q_proj, getattr(attention, "q_norm", None))
    k = split(attention.k_proj, getattr(attention, "k_norm", None))
    q, k = apply_rotary_pos_emb(q, k, *angles)
    repeats = q.shape[1] // k.shape[1]
    k, v, keys, values = (part.repeat_interleave(repeats, 1) for part in (k, split(attention.v_proj, None), rows.keys, rows.values))
    scores = q @ keys.transpose(-1, -2)
    scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(), -torch.inf)
    own = (q * k).sum(-1, keepdim=True)
    weights = (torch.cat([scores, own], -1) * attention.scaling).float().softmax(-1).to(x.dtype)
    mixed = weights[..., :-1] @ values + weights[..., -1:] * v
    return attention.o_proj(mixed.transpose(1, 2).reshape(*x.shape[:2], -1))


def agreement(model, texts, skipped):
    """How often the argmax without some layers is the token that follows in the texts, which are (ids, length of the prompt, cache)."""
    right = total = 0
    for ids, begin, cache in texts:
        x = model.model.embed_tokens(ids)
        angles = model.model.rotary_emb(x, torch.arange(ids.shape[1], device=ids.device)[None])
        for i, layer in enumerate(model.model.layers):
            if i in skipped:
                continue
            x = x + attend(layer.self_attn, layer.input_layernorm(x), angles, cache.layers[i])
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        guesses = model.lm_head(model.model.norm(x[0, begin - 1 : -1])).argmax(-1)
        right += (guesses == ids[0, begin:]).sum().item()
        total += len(guesses)
    return right / total


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
    add("--tokens", type=int, default=64, help="tokens that follow each prompt (default: %(default)s)")
    add("--most", type=int, help="largest number of layers that are left out (default: two thirds)")
    add("--device", default="cpu", choices=("cpu", "cuda"), help="where to compute (default: %(default)s)")
    return parser.parse_args()


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
    prompts = pathlib.Path(args.prompts).read_text(encoding="utf-8").splitlines() if args.prompts else PROMPTS
    texts = []
    for prompt in prompts:
        if not prompt.strip():
            continue
        ids = tokenizer(prompt, return_tensors="pt").input_ids.to(args.device)
        whole = model.generate(ids, max_new_tokens=args.tokens, do_sample=False)
        if whole.shape[1] > ids.shape[1]:
            texts.append((whole, ids.shape[1], model(whole, use_cache=True).past_key_values))
    if not texts:
        raise SystemExit("the target says nothing after these prompts (want others in --prompts)")

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
    print(f"wrote {out}, which leaves out layers {' '.join(map(str, best))}" + ("" if speed > 1 else " (no gain is expected)"))


if __name__ == "__main__":
    main()
