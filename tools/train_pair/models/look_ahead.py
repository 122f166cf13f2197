"""Look-ahead embeddings that draft for a target, and their folder (PaSS: Monea, Joulin, Grave, arXiv:2311.13581)."""
import json
import pathlib

import safetensors.torch
import torch
from torch import nn


class LookAhead(nn.Module):
    """A target's rows with these embeddings follow a text in place of its next tokens. Row i of 1, 2, … guesses the token i + 1 places
    after the newest one."""

    def __init__(self, count, embedding):
        super().__init__()
        self.embeddings = nn.Parameter(embedding.detach().mean(0).repeat(count, 1))

    @property
    def count(self):
        return len(self.embeddings)

    def forward(self, target, caches, positions):
        """What the target's output matrix reads of look-ahead rows: [batch, positions, count, hidden].

        `caches` has the keys and values of a text, by layer. A branch of `count` rows follows the tokens up to each of `positions`.
        It sees no other branch.
        """
        batch, length = caches[0][0].shape[0], caches[0][0].shape[2]
        at = (positions[:, None] + 1 + torch.arange(self.count)).flatten()
        branch = torch.arange(len(positions)).repeat_interleave(self.count)
        sees_text = torch.arange(length) < at[:, None] - torch.arange(self.count).repeat(len(positions))[:, None]
        sees_rows = (branch[:, None] == branch) & (at[:, None] >= at)
        mask = torch.cat([sees_text, sees_rows], 1)
        x = self.embeddings.repeat(batch, len(positions), 1)
        for layer, cache in zip(target.layers, caches):
            x = layer(x, target.cos[at], target.sin[at], list(cache), mask=mask)
        return target.norm(x).unflatten(1, (len(positions), self.count))


def save(model, folder):
    """Writes a folder with BF16 weights."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "model.safetensors"
    stored = model.embeddings.detach().to(torch.bfloat16).contiguous()
    safetensors.torch.save_file({"lookahead.weight": stored}, file, metadata={"format": "pt"})
    file.chmod(0o644)
    config = {"hidden_size": stored.shape[1], "num_lookahead_tokens": stored.shape[0]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


@torch.no_grad()
def load(folder, model):
    """Fills in embeddings from a folder that `save` wrote."""
    model.embeddings.copy_(safetensors.torch.load_file(pathlib.Path(folder) / "model.safetensors")["lookahead.weight"])
    return model.eval()
