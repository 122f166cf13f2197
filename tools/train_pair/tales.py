"""The training text: tales in one file, separated by lines of "%%"."""
import pathlib

import tokenizers
import torch
import torch.nn.functional as F

# Every twentieth tale is held out.
HELD_OUT = 20


def read(path, tokenizer_folder):
    """Returns the vocabulary size and the tokens to train on and of the held-out tales.

    Each tale begins with the begin-of-text token and ends with the end-of-text token. They are the
    last two ids.
    """
    tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(tokenizer_folder) / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab_size()
    tales = [tale.strip() + "\n" for tale in pathlib.Path(path).read_text(encoding="utf-8").split("\n%%\n")]
    train, held_out = [], []
    for i, encoding in enumerate(tokenizer.encode_batch(tales, add_special_tokens=False)):
        to = held_out if i % HELD_OUT == 0 else train
        to += [vocabulary - 2, *encoding.ids, vocabulary - 1]
    return vocabulary, torch.tensor(train), torch.tensor(held_out)


def windows(tokens, length, most=64):
    """Returns up to `most` consecutive windows [count, length + 1] of the tokens."""
    count = min(most, (len(tokens) - 1) // length)
    return torch.stack([tokens[i * length : i * length + length + 1] for i in range(count)])


def check_held_out(chosen, **windows):
    """Ends the program, before it trains for long, if no held-out windows are left to measure weights that `chosen` ones chose."""
    for kind, rows in windows.items():
        if len(rows) <= chosen:
            raise SystemExit(f"--text or --samples is too small: it gives {len(rows)} held-out windows of {kind}, want more than {chosen}")


def random_windows(tokens, length, count, generator):
    """Returns windows [count, length + 1] that begin anywhere."""
    begins = torch.randint(0, len(tokens) - length, (count,), generator=generator)
    return torch.stack([tokens[begin : begin + length + 1] for begin in begins])


@torch.no_grad()
def loss(model, batch):
    """Mean cross-entropy in nats per token over windows [count, length + 1]."""
    total = 0.0
    for rows in batch.split(4):
        logits = model(rows[:, :-1]).float()
        total += F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item() * len(rows)
    return total / len(batch)
