"""Trains heads that guess tokens from a target's last hidden state. The run is resumable.

The target gives the next token itself. Head i (from 1) guesses the token i places after that one, and all heads read the same
hidden state, which is what the target's output matrix reads: x = h + silu(W h + b), logits = U x. With output matrices of
their own, these are Medusa's heads (Cai et al., arXiv:2401.10774). With the target's output matrix for all heads
(--blockwise), they are those of blockwise parallel decoding (Stern et al., arXiv:1811.03115). The target stays as it is.

The loss is the cross-entropy with the target's own distribution at the later position, over the tokens that the heads know, on
the text and on the target's own samples. The hidden states are computed once and kept in files.
"""
import argparse
import hashlib
import os
import pathlib
import time

import acceptance
from models import llama, medusa
import own_samples
import tales
import torch
import torch.nn.functional as F
import training

LENGTH = own_samples.LENGTH
HELD_OUT = ("held-out tales", "held-out samples")  # kinds of windows
CHOOSING = 8  # held-out windows of each kind that choose the weights; the others measure them


def parts(windows, on_cpu=2):
    """Splits windows into those of one pass."""
    return windows.split(32 if training.on_gpu() else on_cpu)


@torch.no_grad()
def hidden_states(target, batch, layer_ids=()):
    """The states that enter these layers, and then what the output matrix reads: [count, length, number of states * hidden]."""
    states = []
    for rows in parts(batch, 4):
        with training.mixed_precision():
            entering = [target.embed_tokens(rows)]
            for layer in target.layers:
                entering.append(layer(entering[-1], target.cos[: rows.shape[1]], target.sin[: rows.shape[1]]))
            kept = [entering[layer] for layer in layer_ids] + [target.norm(entering[-1])]
            states.append(torch.cat(kept, -1).to(torch.bfloat16))
    return torch.cat(states)


def read_or_make_states(target, windows, path, layer_ids=()):
    """Reads what `hidden_states` returns for windows [count, length] from a file, or computes it."""
    if path.exists():
        return training.load(path)
    begin, found = time.monotonic(), []
    for part in windows.split(64):
        found.append(hidden_states(target, part, layer_ids))
        done = sum(len(states) for states in found)
        left = (time.monotonic() - begin) / done * (len(windows) - done) / 60
        print(f"hidden states of {done} of {len(windows)} windows, {left:.0f} min left", flush=True)
    states = torch.cat(found)
    torch.save(states, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)
    return states


def choose_vocabulary(tokens, size, most):
    """Returns the `most` most frequent ids in ascending order."""
    return torch.bincount(tokens.flatten(), minlength=size).topk(min(most, size)).indices.sort().values


def mean_accepted(runs):
    """Mean accepted tokens a round, where runs [count, length] is how many heads in a row are right at each position."""
    accepted = rounds = 0
    for row in runs.tolist():
        at = 0
        while at < len(row):
            accepted += row[at]
            rounds += 1
            at += row[at] + 1
    return accepted / rounds


@torch.no_grad()
def measure(heads, states, output):
    """Compares heads with the target along windows, whose hidden states are [count, length, hidden].

    By head: `first` is how often its first guess is the target's argmax there, `four` how often that is among its first four,
    and `chance` is the target's mean probability of its first guess. `run` is the mean number of heads in a row that agree with
    the argmax, from the first one on. `accepted` is the same along the rounds of a greedy chain. It is exact if the windows
    are the target's greedy text.
    """
    count = len(heads.blocks)
    last = states.shape[1] - count
    first, four, chance, runs = torch.zeros(count), torch.zeros(count), torch.zeros(count), []
    for rows in parts(states):
        rows = rows.float()
        p = F.softmax(F.linear(rows, output), -1)
        best = p.argmax(-1)
        share = len(rows) / len(states)
        is_right, run = torch.ones(len(rows), last, dtype=torch.bool), torch.zeros(len(rows), last, dtype=torch.long)
        for i in range(count):
            guesses = heads.vocabulary[heads(rows[:, :last], i).topk(4).indices]
            later = slice(i + 1, i + 1 + last)
            right = guesses == best[:, later, None]
            first[i] += right[..., 0].float().mean() * share
            four[i] += right.any(-1).float().mean() * share
            chance[i] += p[:, later].gather(-1, guesses[..., :1]).mean() * share
            is_right = is_right & right[..., 0]
            run += is_right
        runs.append(run)
    runs = torch.cat(runs)
    return {"samples": runs.numel(), "first": first, "four": four, "chance": chance, "run": runs.float().mean().item(),
            "accepted": mean_accepted(runs)}


def train(args, heads, states, output, checkpoint):
    """Trains the heads. `states` has the hidden states of each kind of windows."""
    count = len(heads.blocks)

    def loss_of(rows, p, head):
        last = rows.shape[1] - count
        with training.mixed_precision():
            logits = heads(rows[:, :last], head)
        log_q = F.log_softmax(logits.float(), -1)
        return -(p[:, head + 1 : head + 1 + last] * log_q).sum(-1).mean()

    def backward(step):
        generator = training.generator(step)
        quarter = max(1, args.windows // 4)
        chosen = []
        for kind, number in (("text", quarter), ("own", args.windows - quarter)):
            picks = torch.randint(0, len(states[kind]), (number,), generator=generator)
            chosen.append(states[kind][picks])
        total = 0.0
        chosen = torch.cat(chosen)
        for rows in parts(chosen):
            rows = rows.float()
            with torch.no_grad():
                p = F.softmax(F.linear(rows, heads.output), -1)
            for head in range(count):
                loss = loss_of(rows, p, head) * (len(rows) / len(chosen))
                loss.backward()
                total += loss.item() / count
        return total

    def evaluate():
        found = acceptance.measure_and_report(lambda kind: measure(heads, states[kind][:CHOOSING], output), HELD_OUT, "head")
        medusa.save(heads, f"{checkpoint.with_suffix('')}-newest")
        return -sum(measured["run"] for measured in found) / len(found)

    schedule = training.Schedule(args.steps, args.rate, decay=args.decay, warm_up=30, evaluate_every=100)
    training.run(heads, schedule, checkpoint, backward, evaluate)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--text", required=True, help="tales, separated by lines of %%%%")
    add("--target", required=True, help="folder of the target")
    add("--out", required=True, help="folder that receives medusa/ or blockwise/, the samples, the states and the checkpoint")
    add("--blockwise", action="store_true", help="all heads use the target's output matrix")
    add("--heads", type=int, default=4, help="number of heads (default: %(default)s)")
    add("--layers", type=int, default=1, help="residual layers of a head (default: %(default)s)")
    add("--draft-vocabulary", type=int, metavar="N", help="Medusa's heads know the N most frequent tokens only (default: all)")
    own_samples.add_arguments(add, 672)
    add("--steps", type=int, default=600, help="steps of the optimizer (default: %(default)s)")
    add("--windows", type=int, default=8, help=f"windows of {LENGTH} tokens per step (default: %(default)s)")
    add("--rate", type=float, default=2e-3, help="highest learning rate (default: %(default)s)")
    add("--decay", type=float, default=0.0, help="weight decay (default: %(default)s)")
    training.add_device(add)
    args = parser.parse_args()
    if args.blockwise and args.draft_vocabulary:
        parser.error("--blockwise heads know all of the target's tokens (drop --draft-vocabulary)")
    return args


def make_windows(args, target, samples_path):
    """Returns windows of tokens by kind."""
    _, text, text_held_out = tales.read(args.text, args.target)
    own, own_held_out = own_samples.read_split(args, target, text, samples_path)
    held_out = tales.windows(text_held_out, LENGTH)
    tales.check_held_out(CHOOSING, tales=held_out, samples=own_held_out)
    return {
        "text": tales.random_windows(text, LENGTH, len(own) // 2, training.generator(0))[:, :LENGTH],
        "own": own[:, :LENGTH],
        "held-out tales": held_out[:, :LENGTH],
        "held-out samples": own_held_out[:64, :LENGTH],
        "greedy text": own_samples.continue_greedily(target, held_out[:32, : own_samples.PROMPT], LENGTH // 2),
    }


def main():
    args = parse_arguments()
    training.use_device(args.device, 3)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    target = llama.load(args.target).requires_grad_(False)
    output = target.embed_tokens.weight
    weights = pathlib.Path(args.target, "model.safetensors").read_bytes()
    name = hashlib.sha256(weights).hexdigest()[:12]  # samples, states and checkpoints belong to one target
    windows = make_windows(args, target, out / f"samples-{name}.pt")
    states = {kind: read_or_make_states(target, rows, out / f"states-{name}-{kind.replace(' ', '-')}-{len(rows)}.pt")
              for kind, rows in windows.items()}
    family = "blockwise" if args.blockwise else "medusa"
    vocabulary = torch.arange(target.shape.vocabulary)
    if args.draft_vocabulary:
        vocabulary = choose_vocabulary(torch.cat([windows["text"], windows["own"]]), len(vocabulary), args.draft_vocabulary)
    for kind, rows in windows.items():
        print(f"the heads know {len(vocabulary)} tokens, {torch.isin(rows, vocabulary).float().mean():.1%} of {kind}", flush=True)
    heads = medusa.Heads(args.heads, args.layers, output, vocabulary, args.blockwise)
    print(f"{sum(p.numel() for p in heads.parameters()) / 1e6:.2f} M parameters", flush=True)
    train(args, heads, states, output, out / f"{family}-{name}.checkpoint")
    medusa.save(heads, out / family)
    heads = medusa.load(out / family, output)
    measured = {kind: states[kind][CHOOSING:] for kind in HELD_OUT}
    measured["greedy text"] = states["greedy text"][:, own_samples.PROMPT - 1 :]
    acceptance.measure_and_report(lambda kind: measure(heads, measured[kind], output), measured, "head")
    print(f"wrote {out / family}")


if __name__ == "__main__":
    main()
