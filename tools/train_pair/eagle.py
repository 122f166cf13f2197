"""A layer of EAGLE that guesses a target's features, and its folder in the layout of SafeAILab/EAGLE."""
import json
import pathlib

import llama
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn


class Eagle(nn.Module):
    """Guesses the feature of token t from token t and the feature of token t - 1 (Li et al., arXiv:2401.15077).

    A feature is what the target's output matrix reads. `output` is that matrix, which is the embedding too.
    """

    def __init__(self, shape, output):
        super().__init__()
        self.shape = shape
        self.register_buffer("output", output, persistent=False)
        self.fc = nn.Linear(2 * shape.hidden, shape.hidden)
        self.layer = llama.Layer(shape, 0.0)
        self.layer.input_layernorm = nn.Identity()  # the layer has none
        for name, parameter in self.layer.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, 0, 0.02)
        nn.init.zeros_(self.fc.bias)
        with torch.no_grad():  # at first, the feature goes through
            nn.init.normal_(self.fc.weight, 0, 0.01)
            self.fc.weight[:, shape.hidden :] += torch.eye(shape.hidden)
        frequencies = shape.theta ** -(torch.arange(0, shape.head, 2).float() / shape.head)
        angles = torch.arange(shape.context).float()[:, None] * frequencies[None]
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, features):
        """Features [batch, length, hidden] that follow `tokens`. `features` are those of the tokens before them."""
        x = self.fc(torch.cat([F.embedding(tokens, self.output), features], -1))
        length = tokens.shape[1]
        return self.layer(x, self.cos[1 : length + 1], self.sin[1 : length + 1])

    def logits(self, features):
        return F.linear(features, self.output)

    def tensors(self):
        """The parameters, by their names in the file."""
        named = {"fc.weight": self.fc.weight, "fc.bias": self.fc.bias}
        for name, parameter in self.layer.named_parameters():
            part = "self_attn." if name[:2] in ("q_", "k_", "v_", "o_") else "" if "layernorm" in name else "mlp."
            named[f"layers.0.{part}{name}"] = parameter
        return named


def save(eagle, folder):
    """Writes a folder with BF16 weights. Embedding and output matrix are the target's, and not in it."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shape = eagle.shape
    config = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bias": True,
        "head_dim": shape.head,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "max_position_embeddings": shape.context,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": 1,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta,
        "torch_dtype": "bfloat16",
        "vocab_size": shape.vocabulary,
    }
    stored = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in eagle.tensors().items()}
    file = folder / "model.safetensors"
    safetensors.torch.save_file(stored, file, metadata={"format": "pt"})
    file.chmod(0o644)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


@torch.no_grad()
def load(folder, shape, output):
    """Reads a folder that `save` wrote, as F32. `shape` is the target's, but for the inner size."""
    stored = safetensors.torch.load_file(pathlib.Path(folder) / "model.safetensors")
    eagle = Eagle(shape, output)
    for name, parameter in eagle.tensors().items():
        parameter.copy_(stored[name])
    return eagle.eval()
