"""Trains a layer of EAGLE on a target that stays as it is. The run is resumable.

The layer guesses the feature of each token, which is what the target's output matrix reads, from the token and the feature of
the token before it (Li et al., arXiv:2401.15077). In a draft, the layer reads its own guesses. So it is trained on the target's
features first, and then on its own guesses (--passes), as later work does (Zhang et al., HASS, arXiv:2408.15766).

The loss is the cross-entropy with the target's own distribution, and a tenth of the smooth L1 distance of the features. The
features are computed once and kept in files.

With --version 3, the layer is one of EAGLE-3 (Li et al., arXiv:2503.01840). It reads states of several layers of the target, and
guesses a state of its own, so that the loss is the cross-entropy alone, over the most frequent tokens (--draft-vocabulary).
"""
import argparse
import dataclasses
import hashlib
import pathlib

import acceptance
from models import eagle, llama
import own_samples
import torch
import torch.nn.functional as F
import train_heads
import training

LENGTH = own_samples.LENGTH
CHOOSING = train_heads.CHOOSING


def split(model, states):
    """Splits what `hidden_states` returns into the layer's features, and what the target's output matrix reads."""
    states = states.float()
    last = states[..., -model.shape.hidden :]
    return states[..., : -model.shape.hidden] if model.layer_ids else last, last


def passes(model, tokens, features, count):
    """Guesses the states of tokens 1 … in `count` passes. Pass i reads guesses that are i tokens old."""
    guesses = model.begin(features[:, :-1])
    for i in range(count):
        guesses = model(tokens[:, i + 1 :], guesses)
        yield guesses
        guesses = guesses[:, :-1]


@torch.no_grad()
def measure(model, tokens, features, depth=4):
    """By depth, how often the first guess is the target's argmax, and the target's mean probability of the first guess."""
    first, chance = torch.zeros(depth), torch.zeros(depth)
    for rows, row_tokens in zip(train_heads.parts(features), train_heads.parts(tokens)):
        share = len(rows) / len(features)
        read, last = split(model, rows)
        for i, guessed in enumerate(passes(model, row_tokens, read, depth)):
            p = F.softmax(F.linear(last[:, i + 1 :], model.output), -1)
            guess = model.vocabulary[model.logits(guessed).argmax(-1)]
            first[i] += (guess == p.argmax(-1)).float().mean() * share
            chance[i] += p.gather(-1, guess[..., None]).mean() * share
    return {"samples": tokens[:, depth:].numel(), "first": first, "chance": chance}


def train(args, model, windows, states, checkpoint):
    def backward(step):
        generator = training.generator(step)
        quarter = max(1, args.windows // 4)
        tokens, features = [], []
        for kind, number in (("text", quarter), ("own", args.windows - quarter)):
            picks = torch.randint(0, len(states[kind]), (number,), generator=generator)
            tokens.append(windows[kind][picks])
            features.append(states[kind][picks])
        tokens, features = torch.cat(tokens), torch.cat(features)
        total = 0.0
        for rows, row_tokens in zip(train_heads.parts(features), train_heads.parts(tokens)):
            read, last = split(model, rows)
            with torch.no_grad():
                p = F.softmax(F.linear(last, model.output), -1)[..., model.vocabulary]
            loss = 0.0
            with training.mixed_precision():
                guesses = list(passes(model, row_tokens, read, args.passes))
            for i, guessed in enumerate(guesses):
                with training.mixed_precision():
                    logits = model.logits(guessed)
                log_q = F.log_softmax(logits.float(), -1)
                loss = loss - (p[:, i + 1 :] * log_q).sum(-1).mean() / args.passes
                if not model.layer_ids:  # a guess is one of the target's features
                    loss = loss + 0.1 * F.smooth_l1_loss(guessed.float(), last[:, i + 1 :]) / args.passes
            loss = loss * (len(rows) / len(features))
            loss.backward()
            total += loss.item()
        return total

    def evaluate():
        found = acceptance.measure_and_report(
            lambda kind: measure(model, windows[kind][:CHOOSING], states[kind][:CHOOSING]), train_heads.HELD_OUT, "depth")
        return -sum(measured["first"].cumprod(0).sum().item() for measured in found) / len(found)

    schedule = training.Schedule(args.steps, args.rate, decay=args.decay, warm_up=30, evaluate_every=50)
    training.run(model, schedule, checkpoint, backward, evaluate)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--text", required=True, help="tales, separated by lines of %%%%")
    add("--target", required=True, help="folder of the target")
    add("--out", required=True, help="folder that receives eagle/ or eagle3/, the samples, the features and the checkpoint")
    add("--inner", type=int, default=704, help="inner size of the layer's MLP (default: %(default)s)")
    add("--version", type=int, choices=(1, 3), default=1, help="1 is for EAGLE-2 too (default: %(default)s)")
    add("--layer-ids", type=int, nargs="+", metavar="LAYER",
        help="for version 3: the layer reads the states that enter these layers (default: 2, half of them, all but 3)")
    add("--draft-vocabulary", type=int, default=2048, help="for version 3: number of tokens that the layer knows (default: %(default)s)")
    add("--passes", type=int, default=2, help="passes over a window, each on the guesses of the one before (default: %(default)s)")
    own_samples.add_arguments(add, 672)
    add("--steps", type=int, default=600, help="steps of the optimizer (default: %(default)s)")
    add("--windows", type=int, default=8, help=f"windows of {LENGTH} tokens per step (default: %(default)s)")
    add("--rate", type=float, default=1e-3, help="highest learning rate (default: %(default)s)")
    add("--decay", type=float, default=0.0, help="weight decay (default: %(default)s)")
    training.add_device(add)
    return parser.parse_args()


def chosen_layers(given, count):
    """The layers that a layer of EAGLE-3 reads, for a target of `count` layers."""
    layers = given or [2, count // 2, count - 3]
    # A list that begins with 1 stands for layers that the states leave.
    if len(layers) > 8 or layers[0] == 1 or not all(0 <= layer <= count for layer in layers):
        raise SystemExit(f"--layer-ids: got {' '.join(map(str, layers))}, want at most 8 from 0 to {count}, and not 1 as the first one")
    return tuple(layers)


def main():
    args = parse_arguments()
    training.use_device(args.device, 3)
    target = llama.load(args.target).requires_grad_(False)
    if args.version == 3:
        chosen_layers(args.layer_ids, target.shape.layers)  # before anything takes long
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    output = target.embed_tokens.weight
    shape = dataclasses.replace(target.shape, layers=1, inner=args.inner)
    weights = pathlib.Path(args.target, "model.safetensors").read_bytes()
    name = hashlib.sha256(weights).hexdigest()[:12]  # samples, features and checkpoints belong to one target
    windows = train_heads.make_windows(args, target, out / f"samples-{name}.pt")
    make = lambda: eagle.Eagle(shape, output)
    folder, layer_ids = "eagle", ()
    if args.version == 3:
        folder, layer_ids = "eagle3", chosen_layers(args.layer_ids, target.shape.layers)
        tokens = torch.cat([windows["text"], windows["own"]])
        vocabulary = train_heads.choose_vocabulary(tokens, target.shape.vocabulary, args.draft_vocabulary)
        make = lambda: eagle.Eagle3(shape, output, layer_ids, vocabulary)
        known = torch.isin(tokens, vocabulary).float().mean()
        print(f"the layer knows {len(vocabulary)} tokens, which are {known:.4f} of the windows", flush=True)
    which = "".join(f"-{layer}" for layer in layer_ids)
    run = f"{folder}-{name}{which}"
    if layer_ids:  # a checkpoint belongs to a vocabulary too
        run += f"-{hashlib.sha256(vocabulary.cpu().numpy().tobytes()).hexdigest()[:8]}"
    states = {kind: train_heads.read_or_make_states(
                  target, rows, out / f"states-{name}{which}-{kind.replace(' ', '-')}-{len(rows)}.pt", layer_ids)
              for kind, rows in windows.items()}
    model = make()
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters", flush=True)
    train(args, model, windows, states, out / f"{run}.checkpoint")
    eagle.save(model, out / folder)
    model = eagle.load(out / folder, make())
    measured = {kind: (windows[kind][CHOOSING:], states[kind][CHOOSING:]) for kind in train_heads.HELD_OUT}
    measured["greedy text"] = [rows["greedy text"][:, own_samples.PROMPT - 1 :] for rows in (windows, states)]
    acceptance.measure_and_report(lambda kind: measure(model, *measured[kind]), measured, "depth")
    print(f"wrote {out / folder}")


if __name__ == "__main__":
    main()
