"""Texts that a target itself writes. Drafters work on such texts, and not on those of people."""
import contextlib
import os
import pathlib
import sys
import tempfile
import time

import tales
import torch
import torch.nn.functional as F
import training

LENGTH = 512
BATCH = 96  # samples that are drawn at once; a GPU draws eight times as many
PROMPT = 16
# Every fourth sample is held out.
HELD_OUT = 4
SOURCE_DIR = pathlib.Path(__file__).resolve().parents[2]
SLOTS = 32  # samples that a server draws at once


@torch.no_grad()
def _continue(target, prompts, length, choose):
    """Continues prompts [batch, PROMPT] to `length` tokens. `choose` takes logits [batch, vocabulary]."""
    caches = [[] for _ in target.layers]
    tokens, rows = prompts, prompts
    while tokens.shape[1] < length:
        with training.mixed_precision():
            logits = target(rows, caches)[:, -1]
        rows = choose(logits.float())
        tokens = torch.cat([tokens, rows], 1)
    return tokens


def sample_batch(target, prompts, temperatures, generator):
    """Continues prompts [batch, PROMPT] to LENGTH + 1 tokens."""
    def choose(logits):
        return torch.multinomial(F.softmax(logits / temperatures, -1), 1, generator=generator)

    return _continue(target, prompts, LENGTH + 1, choose)


def continue_greedily(target, prompts, length):
    """Continues prompts [batch, PROMPT] to `length` tokens, each the likeliest one."""
    return _continue(target, prompts, length, lambda logits: logits.argmax(-1, keepdim=True))


class ServedSampler:
    """A Tandem server that draws samples of a target while the context lasts. It needs the packages of tests/system/requirements.txt."""

    def __init__(self, binaries, target):
        os.environ["TANDEM_BINARY_DIR"] = str(pathlib.Path(binaries).absolute())
        sys.path.insert(0, str(SOURCE_DIR / "tests" / "system"))
        import stubs

        stubs.make()
        import harness

        self._folder = tempfile.TemporaryDirectory(prefix="tandem-samples-")
        self._server = harness.Server(pathlib.Path(self._folder.name), target=pathlib.Path(target).absolute(), drafter="none",
                                      max_slots=SLOTS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop()
        self._folder.cleanup()

    def sample(self, prompts, temperatures, length, first_seed):
        """Continues prompts [batch, n] to `length` tokens. Sample i has the seed first_seed + i."""
        requests = [(prompt, dict(temperature=temperature, max_tokens=length - len(prompt), ignore_eos=True, seed=first_seed + i))
                    for i, (prompt, temperature) in enumerate(zip(prompts.tolist(), temperatures.flatten().tolist()))]
        outputs = self._server.generate_all(requests, SLOTS)
        return torch.tensor([prompt + output.token_ids for (prompt, _), output in zip(requests, outputs)])


def read_or_make(target, train, count, path, sampler=None):
    """Reads samples [count, LENGTH + 1] from a file, and adds those that it lacks. `sampler` (ServedSampler) draws them, or
    PyTorch."""
    batch = 8 * BATCH if training.on_gpu() and sampler is None else BATCH
    done = [training.load(path)] if path.exists() else []
    begin = time.monotonic()
    while sum(len(part) for part in done) < count:
        index = sum(len(part) for part in done)
        generator = training.generator(index)
        prompts = tales.random_windows(train, PROMPT - 1, batch, generator)
        prompts[::2, 0] = target.shape.vocabulary - 2
        temperatures = torch.where(torch.arange(batch) % 3 == 2, 0.6, 1.0)[:, None]
        done.append(sample_batch(target, prompts, temperatures, generator) if sampler is None else
                    sampler.sample(prompts, temperatures, LENGTH + 1, index))
        torch.save(torch.cat(done), path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)
        print(f"{index + batch} of {count} samples, {time.monotonic() - begin:.0f} s", flush=True)
    return torch.cat(done)


def add_arguments(add, count):
    """Adds the options of read_split to a parser."""
    add("--samples", type=int, default=count, help=f"samples of {LENGTH} tokens (default: %(default)s)")
    add("--binaries", help="folder of a build of Tandem, whose server draws the samples (default: PyTorch draws them)")


def read_split(args, target, train, path):
    """Reads or makes the samples. Returns those to train on, and the held-out ones."""
    with contextlib.nullcontext() if args.binaries is None else ServedSampler(args.binaries, args.target) as sampler:
        own = read_or_make(target, train, args.samples, path, sampler)
    return own[torch.arange(len(own)) % HELD_OUT != 0], own[::HELD_OUT]
