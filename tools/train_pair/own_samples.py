"""Texts that a target itself writes. Drafters work on such texts, and not on those of people."""
import os
import time

import tales
import torch
import torch.nn.functional as F
import training

LENGTH = 512
BATCH = 96
PROMPT = 16
# Every fourth sample is held out.
HELD_OUT = 4


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


def read_or_make(target, train, count, path):
    """Reads samples [count, LENGTH + 1] from a file, and adds those that it lacks."""
    done = [torch.load(path)] if path.exists() else []
    begin = time.monotonic()
    while sum(len(part) for part in done) < count:
        index = sum(len(part) for part in done)
        generator = torch.Generator().manual_seed(index)
        prompts = tales.random_windows(train, PROMPT - 1, BATCH, generator)
        prompts[::2, 0] = target.shape.vocabulary - 2
        temperatures = torch.where(torch.arange(BATCH) % 3 == 2, 0.6, 1.0)[:, None]
        done.append(sample_batch(target, prompts, temperatures, generator))
        torch.save(torch.cat(done), path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)
        print(f"{index + BATCH} of {count} samples, {time.monotonic() - begin:.0f} s", flush=True)
    return torch.cat(done)


def split(own):
    """Returns the samples to train on, and the held-out ones."""
    return own[torch.arange(len(own)) % HELD_OUT != 0], own[::HELD_OUT]
