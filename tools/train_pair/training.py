"""A resumable run of AdamW with a warm-up and a cosine."""
import dataclasses
import math
import os
import pathlib
import time

import torch


def add_device(add):
    """Adds the option of use_device to a parser."""
    add("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu",
        help="device that computes (default: cuda if PyTorch finds an NVIDIA GPU, else cpu)")


def use_device(name, seed):
    """Makes a device the one that tensors lie on. Its random numbers begin with `seed`."""
    torch.set_default_device(name)
    torch.manual_seed(seed)


def on_gpu():
    return torch.get_default_device().type == "cuda"


def generator(seed):
    """Random numbers of one step. A GPU draws other ones than a CPU."""
    return torch.Generator(torch.get_default_device()).manual_seed(seed)


def load(path):
    return torch.load(path, map_location=torch.get_default_device())


def mixed_precision():
    """BF16 where there are instructions for it. Elsewhere, F32 is faster."""
    if on_gpu():
        return torch.autocast("cuda", torch.bfloat16)
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return torch.autocast("cpu", torch.bfloat16, enabled="avx512_bf16" in flags or "amx_bf16" in flags)


@dataclasses.dataclass(frozen=True)
class Schedule:
    steps: int
    rate: float  # the highest learning rate
    decay: float  # AdamW's weight decay of matrices
    warm_up: int = 60
    evaluate_every: int = 50

    def rate_at(self, step):
        rise = min(1.0, (step + 1) / self.warm_up)
        return self.rate * rise * (0.05 + 0.95 * (0.5 + 0.5 * math.cos(math.pi * step / self.steps)))


def _optimizer(model, schedule):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": schedule.decay},
              {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=schedule.rate, betas=(0.9, 0.95))


def run(model, schedule, checkpoint, backward, evaluate):
    """Trains `model` and leaves its best weights in it.

    `backward(step)` adds gradients of one step and returns its loss. `evaluate()` returns a number
    of which less is better. The run goes on from `checkpoint` if that file exists.
    """
    checkpoint = pathlib.Path(checkpoint)
    optimizer = _optimizer(model, schedule)
    best, best_weights, first = math.inf, None, 0
    if checkpoint.exists():
        state = load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        best, best_weights, first = state["best"], state["best_weights"], state["step"]
        print(f"goes on at step {first} of {schedule.steps}", flush=True)
    begin = time.monotonic()
    total = 0.0
    for step in range(first, schedule.steps):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate_at(step)
        model.train()
        total += backward(step)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        done = step + 1
        if done % schedule.evaluate_every and done != schedule.steps:
            continue
        model.eval()
        value = evaluate()
        if value < best:
            best = value
            best_weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        seconds = (time.monotonic() - begin) / (done - first)
        left = (schedule.steps - done) * seconds / 60
        mean = total / ((done - 1) % schedule.evaluate_every + 1)
        print(f"step {done} of {schedule.steps}: loss {mean:.3f}, held out {value:.4f} (best {best:.4f}), "
              f"{seconds:.2f} s a step, {left:.0f} min left", flush=True)
        total = 0.0
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": done,
                 "best": best, "best_weights": best_weights}
        torch.save(state, checkpoint.with_suffix(".new"))
        os.replace(checkpoint.with_suffix(".new"), checkpoint)
    model.load_state_dict(best_weights)
    return best
