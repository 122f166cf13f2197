"""Distills a draft from a target, on the text and on the target's own samples. The run is resumable.

The draft learns the target's distributions (Hinton et al., arXiv:1503.02531). Samples of the target
matter, because a draft works on what the target writes (DistillSpec, arXiv:2310.08461). The loss is
the cross-entropy with the target's distribution plus the total variation distance, which is one less
the acceptance of speculative sampling (Leviathan et al., arXiv:2211.17192).
"""
import argparse
import hashlib
import pathlib

import acceptance
from models import llama
import own_samples
import tales
import torch
import torch.nn.functional as F
import training

CHOOSING = 10  # held-out windows of each kind that choose the weights; the others measure them


@torch.no_grad()
def agreement(target, draft, batch):
    """Mean of sum(min(p, q)) over positions, and how often the argmaxes agree."""
    accepted = agreed = 0.0
    for rows in batch.split(4):
        p = F.softmax(target(rows[:, :-1]).float(), -1)
        q = F.softmax(draft(rows[:, :-1]).float(), -1)
        accepted += torch.minimum(p, q).sum(-1).mean().item() * len(rows)
        agreed += (p.argmax(-1) == q.argmax(-1)).float().mean().item() * len(rows)
    return accepted / len(batch), agreed / len(batch)


@torch.no_grad()
def by_position(target, draft, windows, depth, apart=32):
    """The chances of drafts of `depth` tokens that begin at every `apart`-th token of windows [count, length]."""
    found = {"greedy": acceptance.Chances(depth), "sampled": acceptance.Chances(depth)}
    places = range(apart, windows.shape[1], apart)
    generator = training.generator(0)

    def after(model, caches, place):
        """The logits after tokens that follow the texts before `place`."""
        cut = [[part[:, :, :place] for part in cache] for cache in caches]
        return lambda tokens: model(tokens[:, None], cut)[:, -1]

    for rows in windows.split(16):
        read = [(model, [[] for _ in model.layers]) for model in (draft, target)]
        for model, caches in read:
            model(rows[:, :-1], caches)
        for place in places:
            for name, chances in found.items():
                begun = [after(model, caches, place) for model, caches in read]
                acceptance.follow(*begun, rows[:, place], chances, generator if name == "sampled" else None)
    return {"samples": len(windows) * len(places), **found}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--text", required=True, help="tales, separated by lines of %%%%")
    add("--target", required=True, help="folder of the target")
    add("--out", required=True, help="folder that receives draft/, the samples and the checkpoint")
    add("--shape", default="160,2,5,1,448,32", help="hidden, layers, heads, KV heads, inner, head (default: %(default)s)")
    own_samples.add_arguments(add, 1536)
    add("--steps", type=int, default=700, help="steps of the optimizer (default: %(default)s)")
    add("--windows", type=int, default=16, help=f"windows of {own_samples.LENGTH} tokens per step (default: %(default)s)")
    add("--rate", type=float, default=4e-3, help="highest learning rate (default: %(default)s)")
    add("--draft-length", type=int, default=6, help="positions of a draft whose acceptance is reported (default: %(default)s)")
    training.add_device(add)
    return parser.parse_args()


def main():
    args = parse_arguments()
    training.use_device(args.device, 2)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    target = llama.load(args.target)
    weights = pathlib.Path(args.target, "model.safetensors").read_bytes()
    name = hashlib.sha256(weights).hexdigest()[:12]  # samples and checkpoints belong to one target
    vocabulary, train, held_out = tales.read(args.text, args.target)
    draft = llama.Llama(llama.Shape.parse(args.shape, vocabulary))
    own, own_held_out = own_samples.read_split(args, target, train, out / f"samples-{name}.pt")
    own_held_out = own_held_out[:50]
    held_out = tales.windows(held_out, own_samples.LENGTH, most=50)
    tales.check_held_out(CHOOSING, tales=held_out, samples=own_held_out)
    print(f"{draft.parameter_count() / 1e6:.2f} M parameters", flush=True)

    def loss_of(rows, p):
        with training.mixed_precision():
            logits = draft(rows)
        log_q = F.log_softmax(logits.float(), -1)
        return -(p * log_q).sum(-1).mean() + 0.5 * (p - log_q.exp()).abs().sum(-1).mean()

    @torch.no_grad()
    def distribution(rows):
        with training.mixed_precision():
            logits = target(rows)
        return F.softmax(logits.float(), -1)

    compiled, teacher = torch.compile(loss_of), torch.compile(distribution)

    def backward(step):
        generator = training.generator(step)
        text = tales.random_windows(train, own_samples.LENGTH, args.windows // 4, generator)
        chosen = torch.randint(0, len(own), (args.windows - len(text),), generator=generator)
        rows = torch.cat([text, own[chosen]])[:, :-1]
        total = 0.0
        for part in rows.split(4):
            loss = compiled(part, teacher(part)) * (len(part) / len(rows))
            loss.backward()
            total += loss.item()
        return total

    def evaluate():
        alphas = [agreement(target, draft, batch[:CHOOSING])[0] for batch in (held_out, own_held_out)]
        print(f"acceptance on held-out tales {alphas[0]:.3f}, on the target's own {alphas[1]:.3f}", flush=True)
        return 1 - sum(alphas) / len(alphas)

    schedule = training.Schedule(args.steps, args.rate, decay=0.01, evaluate_every=100)
    training.run(draft, schedule, out / f"draft-{name}.checkpoint", backward, evaluate)
    llama.save(draft, out / "draft", args.target)
    draft = llama.load(out / "draft")
    measured = {"held-out tales": held_out[CHOOSING:], "the target's own held-out samples": own_held_out[CHOOSING:]}
    for source, batch in measured.items():
        accepted, agreed = agreement(target, draft, batch)
        print(f"on {source}: acceptance {accepted:.3f} at temperature 1, argmaxes agree on {agreed:.3f}")
    acceptance.measure_and_report(lambda kind: by_position(target, draft, measured[kind], args.draft_length), measured, "position")
    print(f"wrote {out / 'draft'}")


if __name__ == "__main__":
    main()
