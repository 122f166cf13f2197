"""Trains look-ahead embeddings for a target that stays as it is (PaSS: Monea et al., arXiv:2311.13581). The run is resumable.

Rows with these embeddings follow a text in place of its next tokens, and each guesses one token further. The embeddings are all that
is trained. Branches of such rows follow many positions of a window at once: a row sees the tokens up to its position, and the rows
of its branch before it.

The loss is the cross-entropy with the target's own distribution of the token that a row guesses.
"""
import argparse
import hashlib
import pathlib

import acceptance
from models import llama, look_ahead
import own_samples
import torch
import torch.nn.functional as F
import train_heads
import training

CHOOSING = train_heads.CHOOSING
APART = 5  # tokens between the positions at which embeddings are measured


@torch.no_grad()
def read(target, tokens):
    """The keys and values of windows by layer, and what the target's output matrix reads of them."""
    caches = [[] for _ in target.layers]
    with training.mixed_precision():
        x = target.embed_tokens(tokens)
        for layer, cache in zip(target.layers, caches):
            x = layer(x, target.cos[: tokens.shape[1]], target.sin[: tokens.shape[1]], cache)
        return caches, target.norm(x)


def later(states, positions, count):
    """The target's own states at the tokens that look-ahead rows stand for: [batch, positions, count, hidden]."""
    return states[:, positions[:, None] + 1 + torch.arange(count)]


@torch.no_grad()
def measure(model, target, windows, apart=APART):
    """Compares embeddings with the target along windows [count, length].

    By row: `first` is how often its first guess is the target's argmax there, and `chance` is the target's mean probability of that
    guess. `run` is the mean number of rows in a row that agree with the argmax. With `apart` = 1, `accepted` is the mean number of
    accepted tokens of greedy rounds: the first one is the target's own guess.
    """
    output = target.embed_tokens.weight
    positions = torch.arange(0, windows.shape[1] - model.count, apart)
    first, chance, runs = torch.zeros(model.count), torch.zeros(model.count), []
    for rows in train_heads.parts(windows):
        share = len(rows) / len(windows)
        caches, states = read(target, rows)
        found = []
        for some in positions.split(64):
            with training.mixed_precision():
                guesses = F.linear(model(target, caches, some), output).argmax(-1)
                p = F.softmax(F.linear(later(states, some, model.count), output).float(), -1)
            is_right = guesses == p.argmax(-1)
            part = len(some) / len(positions) * share
            first += is_right.float().mean((0, 1)) * part
            chance += p.gather(-1, guesses[..., None])[..., 0].mean((0, 1)) * part
            found.append(is_right.long().cumprod(-1).sum(-1))
        runs.append(torch.cat(found, 1))
    runs = torch.cat(runs)
    measured = {"samples": runs.numel(), "first": first, "chance": chance, "run": runs.float().mean().item()}
    return measured if apart > 1 else measured | {"accepted": train_heads.mean_accepted(runs + 1)}


def train(args, model, target, windows, checkpoint):
    output = target.embed_tokens.weight

    def backward(step):
        generator = training.generator(step)
        quarter = max(1, args.windows // 4)
        chosen = []
        for kind, number in (("text", quarter), ("own", args.windows - quarter)):
            chosen.append(windows[kind][torch.randint(0, len(windows[kind]), (number,), generator=generator)])
        chosen = torch.cat(chosen)
        positions = torch.randperm(chosen.shape[1] - model.count, generator=generator)[: args.branches]
        total = 0.0
        for rows in train_heads.parts(chosen):
            caches, states = read(target, rows)
            with torch.no_grad():
                p = F.softmax(F.linear(later(states, positions, model.count).float(), output), -1)
            with training.mixed_precision():
                logits = F.linear(model(target, caches, positions), output)
            loss = -(p * F.log_softmax(logits.float(), -1)).sum(-1).mean() * (len(rows) / len(chosen))
            loss.backward()
            total += loss.item()
        return total

    def evaluate():
        found = acceptance.measure_and_report(lambda kind: measure(model, target, windows[kind][:CHOOSING]), train_heads.HELD_OUT, "row")
        return -sum(measured["run"] for measured in found) / len(found)

    schedule = training.Schedule(args.steps, args.rate, decay=0.0, warm_up=20, evaluate_every=50)
    training.run(model, schedule, checkpoint, backward, evaluate)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--text", required=True, help="tales, separated by lines of %%%%")
    add("--target", required=True, help="folder of the target")
    add("--out", required=True, help="folder that receives pass/, the samples and the checkpoint")
    add("--look-ahead", type=int, default=3, choices=range(1, 16), metavar="ROWS", help="look-ahead embeddings (default: %(default)s)")
    own_samples.add_arguments(add, 192)
    add("--steps", type=int, default=300, help="steps of the optimizer (default: %(default)s)")
    add("--windows", type=int, default=4, help=f"windows of {own_samples.LENGTH} tokens per step (default: %(default)s)")
    add("--branches", type=int, default=128, help="positions of a window that look-ahead rows follow (default: %(default)s)")
    add("--rate", type=float, default=0.04, help="highest learning rate (default: %(default)s)")
    training.add_device(add)
    return parser.parse_args()


def main():
    args = parse_arguments()
    training.use_device(args.device, 3)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    target = llama.load(args.target).requires_grad_(False)
    weights = pathlib.Path(args.target, "model.safetensors").read_bytes()
    name = hashlib.sha256(weights).hexdigest()[:12]  # samples and checkpoints belong to one target
    windows = train_heads.make_windows(args, target, out / f"samples-{name}.pt")
    model = look_ahead.LookAhead(args.look_ahead, target.embed_tokens.weight)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    train(args, model, target, windows, out / f"pass-{args.look_ahead}-{name}.checkpoint")
    look_ahead.save(model, out / "pass")
    model = look_ahead.load(out / "pass", model)
    measured = {kind: (windows[kind][CHOOSING:],) for kind in train_heads.HELD_OUT}
    measured["greedy text"] = (windows["greedy text"][:, own_samples.PROMPT - 1 :], 1)
    acceptance.measure_and_report(lambda kind: measure(model, target, *measured[kind]), measured, "row")
    print(f"wrote {out / 'pass'}")


if __name__ == "__main__":
    main()
