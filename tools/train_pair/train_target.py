"""Trains the target of a pair on a text. The run is resumable."""
import argparse
import pathlib

from models import llama
import tales
import torch
import torch.nn.functional as F
import training

LENGTH = 512


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--text", required=True, help="tales, separated by lines of %%%%")
    add("--tokenizer", required=True, help="folder of a model with the tokenizer to use")
    add("--out", required=True, help="folder that receives target/ and the checkpoint")
    add("--shape", default="512,6,8,4,1408,64", help="hidden, layers, heads, KV heads, inner, head (default: %(default)s)")
    add("--steps", type=int, default=800, help="steps of the optimizer (default: %(default)s)")
    add("--windows", type=int, default=16, help=f"windows of {LENGTH} tokens per step (default: %(default)s)")
    add("--micro-batch", type=int, default=4, help="windows that are computed together (default: %(default)s)")
    add("--rate", type=float, default=1.2e-3, help="highest learning rate (default: %(default)s)")
    add("--decay", type=float, default=0.2, help="weight decay (default: %(default)s)")
    add("--dropout", type=float, default=0.1, help="dropout after attention and MLP (default: %(default)s)")
    training.add_device(add)
    args = parser.parse_args()

    training.use_device(args.device, 1)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    vocabulary, train, held_out = tales.read(args.text, args.tokenizer)
    model = llama.Llama(llama.Shape.parse(args.shape, vocabulary), args.dropout)
    print(f"{len(train)} tokens, {len(held_out)} held out, {model.parameter_count() / 1e6:.1f} M parameters", flush=True)
    held_out = tales.windows(held_out, LENGTH, most=100)
    choosing, measuring = held_out[::3], torch.cat([held_out[1::3], held_out[2::3]])

    def loss_of(rows):
        with training.mixed_precision():
            logits = model(rows[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())

    compiled = torch.compile(loss_of)

    def backward(step):
        generator = training.generator(step)
        rows = tales.random_windows(train, LENGTH, args.windows, generator)
        total = 0.0
        for part in rows.split(args.micro_batch):
            loss = compiled(part) * (len(part) / len(rows))
            loss.backward()
            total += loss.item()
        return total

    schedule = training.Schedule(args.steps, args.rate, args.decay)
    best = training.run(model, schedule, out / "target.checkpoint", backward, lambda: tales.loss(model, choosing))
    llama.save(model, out / "target", args.tokenizer)
    measured = tales.loss(model.eval(), measuring)
    print(f"{measured:.4f} nats per token on held-out tales ({best:.4f} on those that chose the weights); wrote {out / 'target'}")


if __name__ == "__main__":
    main()
