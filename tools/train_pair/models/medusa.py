"""Heads that guess tokens from a target's last hidden state, and their folder in the layout of vLLM's Medusa."""
import json
import pathlib

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn


class Heads(nn.Module):
    """`vocabulary` has the target's ids that the heads know. `output` is the target's output matrix."""

    def __init__(self, count, layers, output, vocabulary, is_blockwise):
        super().__init__()
        hidden = output.shape[1]
        self.size = output.shape[0]  # the target's vocabulary
        self.blocks = nn.ModuleList([nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(layers)]) for _ in range(count)])
        for block in self.blocks:
            for layer in block:
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)
        self.register_buffer("vocabulary", vocabulary, persistent=False)
        self.register_buffer("output", output[vocabulary].contiguous(), persistent=False)
        own = 0 if is_blockwise else count
        self.lm_heads = nn.ParameterList([nn.Parameter(self.output.clone()) for _ in range(own)])

    def forward(self, features, head):
        """Logits [..., len(vocabulary)] of one head."""
        x = features
        for layer in self.blocks[head]:
            x = x + F.silu(layer(x))
        return F.linear(x, self.lm_heads[head] if self.lm_heads else self.output)

    def tensors(self):
        """The parameters, by their names in the file."""
        named = {}
        for i, block in enumerate(self.blocks):
            for j, layer in enumerate(block):
                named[f"blocks.{i}.layers.{j}.weight"] = layer.weight
                named[f"blocks.{i}.layers.{j}.bias"] = layer.bias
        for i, matrix in enumerate(self.lm_heads):
            named[f"lm_heads.{i}.weight"] = matrix
        return named


def write(folder, tensors, vocab_size, dtype=torch.bfloat16):
    """Writes tensors that have the names of the layout. The sizes in config.json are those of the tensors."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "model.safetensors"
    count = sum(name.startswith("blocks.") and name.endswith(".layers.0.weight") for name in tensors)
    layers = sum(name.startswith("blocks.0.") and name.endswith(".weight") for name in tensors)
    known = tensors["lm_heads.0.weight"].shape[0] if "lm_heads.0.weight" in tensors else vocab_size
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": tensors["blocks.0.layers.0.weight"].shape[1],
        "vocab_size": vocab_size,
        "truncated_vocab_size": known,
        "num_heads": count,
        "num_hidden_layers": layers,
        "medusa_fc_bias": "blocks.0.layers.0.bias" in tensors,
        "original_lm_head": "lm_heads.0.weight" not in tensors,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    stored = {name: tensor.detach().to(torch.int64 if name == "token_map" else dtype).contiguous() for name, tensor in tensors.items()}
    safetensors.torch.save_file(stored, file, metadata={"format": "pt"})
    file.chmod(0o644)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def save(heads, folder):
    """Writes a folder with BF16 weights."""
    tensors = heads.tensors()
    if len(heads.vocabulary) < heads.size:
        tensors["token_map"] = heads.vocabulary
    write(folder, tensors, heads.size)


@torch.no_grad()
def load(folder, output):
    """Reads a folder that `save` wrote, as F32. `output` is the target's output matrix."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    vocabulary = stored.get("token_map", torch.arange(config["vocab_size"])).to(output.device)
    heads = Heads(config["num_heads"], config["num_hidden_layers"], output, vocabulary, config["original_lm_head"])
    for name, parameter in heads.tensors().items():
        parameter.copy_(stored[name])
    return heads.eval()
