"""How often what a drafter drafts is accepted, by position of a draft, and the lines that report it.

Position 1 of a draft is the token that follows the text. The chance of a position is that of its token being accepted if those
before it were, as the server counts it. A greedy draft has the drafter's likeliest tokens, and a token is accepted if it is the
target's likeliest one there. A sampled draft is drawn from the drafter's distribution q, and a token x is accepted with the chance
min(1, p(x) / q(x)), where p is the target's (Leviathan et al., arXiv:2211.17192). Over all x, this is the sum of min(p, q).
"""
import torch
import torch.nn.functional as F

NAMES = {"first": "the first guess is the target's argmax", "four": "it is among four", "chance": "chance of the first guess",
         "run": "in a row", "accepted": "a round", "greedy": "a greedy draft is accepted", "sampled": "a sampled draft is accepted"}


def numbers(values):
    return " ".join(f"{value:.3f}" for value in values.tolist())


def report(source, by, measured):
    """Prints what was measured: values by head, depth, row or position, and numbers. `samples` is how many samples there were."""
    parts = []
    for name, value in measured.items():
        if isinstance(value, Chances):
            parts.append(f"{NAMES[name]} {numbers(value.chances())} (of {' '.join(f'{count:.0f}' for count in value.tested)})")
        elif name != "samples":
            parts.append(f"{NAMES[name]} {numbers(value) if torch.is_tensor(value) else f'{value:.3f}'}")
    print(f"on {source} ({measured['samples']} samples), by {by}: {', '.join(parts)}", flush=True)


def measure_and_report(measure, kinds, by):
    """Measures on each of some kinds of windows, prints it, and returns what was measured."""
    found = []
    for kind in kinds:
        found.append(measure(kind))
        report(kind, by, found[-1])
    return found


class Chances:
    """The chances of the positions of drafts. A sample counts at a position with the chance that the draft is accepted up to it."""

    def __init__(self, depth):
        self.tested = torch.zeros(depth, dtype=torch.float64, device="cpu")  # how many samples count
        self.accepted = torch.zeros(depth, dtype=torch.float64, device="cpu")

    def add(self, position, reached, chance):
        """Adds samples: the chance that each one reaches a position (from 0), and that it is accepted there."""
        self.tested[position] += reached.sum().item()
        self.accepted[position] += (reached * chance).sum().item()

    def chances(self):
        """By position. It is 0 where no sample counts."""
        return self.accepted / self.tested.clamp(min=1e-9)


@torch.no_grad()
def follow(draft, target, tokens, chances, generator=None):
    """Lets `draft` draft after some texts that end with `tokens` [count], and adds how much `target` accepts to `chances`.

    `draft` and `target` take the next token of each text, and return the logits [count, vocabulary] after it. They keep what came
    before. With a generator, drafts are sampled at temperature 1. Otherwise they are greedy.
    """
    reached = torch.ones(len(tokens), dtype=torch.float64, device=tokens.device)
    for position in range(len(chances.tested)):
        q, p = draft(tokens).float(), target(tokens).float()
        if generator is None:
            tokens = q.argmax(-1)
            chance = kept = (tokens == p.argmax(-1)).double()
        else:
            q, p = F.softmax(q, -1).double(), F.softmax(p, -1).double()
            tokens = torch.multinomial(q, 1, generator=generator)
            chance = torch.minimum(p, q).sum(-1)
            kept = (p.gather(-1, tokens) / q.gather(-1, tokens)).clamp(max=1).squeeze(-1)
            tokens = tokens.squeeze(-1)
        chances.add(position, reached, chance)
        reached = reached * kept
    return chances
