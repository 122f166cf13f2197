"""Layers of EAGLE that draft for a target, and their folders in the layouts of SafeAILab/EAGLE."""
import json
import pathlib

import safetensors.torch
import torch
import torch.nn.functional as F
from models import llama
from torch import nn


class Base(nn.Module):
    """What the versions share. `output` is the target's output matrix, which is the embedding too."""

    layer_ids = ()  # the layer reads the states that enter these layers of the target; none: what its output matrix reads

    def __init__(self, shape, output, inputs):
        super().__init__()
        self.shape = shape
        self.register_buffer("output", output, persistent=False)
        self.register_buffer("vocabulary", torch.arange(shape.vocabulary), persistent=False)  # the target's ids of its tokens
        self.layer = llama.Layer(shape, 0.0, inputs)
        for name, parameter in self.layer.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, 0, 0.02)
        frequencies = shape.theta ** -(torch.arange(0, shape.head, 2).float() / shape.head)
        angles = torch.arange(shape.context).float()[:, None] * frequencies[None]
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def turned(self, x, attended=None):
        """The layer's result for the rows of positions 1, 2, …"""
        length = x.shape[1]
        return self.layer(x, self.cos[1 : length + 1], self.sin[1 : length + 1], attended=attended)

    def layer_tensors(self, prefix):
        """The layer's parameters, by their names in the file."""
        named = {}
        for name, parameter in self.layer.named_parameters():
            part = "self_attn." if name[:2] in ("q_", "k_", "v_", "o_") else "" if "layernorm" in name else "mlp."
            named[f"{prefix}{part}{name}"] = parameter
        return named

    def settings(self):
        """What config.json has beside a Llama's fields."""
        return {}


class Eagle(Base):
    """Guesses the feature of token t from token t and the feature of token t - 1 (Li et al., arXiv:2401.15077).

    A feature is what the target's output matrix reads.
    """

    def __init__(self, shape, output):
        super().__init__(shape, output, 1)
        self.fc = nn.Linear(2 * shape.hidden, shape.hidden)
        self.layer.input_layernorm = nn.Identity()  # the layer has none
        nn.init.zeros_(self.fc.bias)
        with torch.no_grad():  # at first, the feature goes through
            nn.init.normal_(self.fc.weight, 0, 0.01)
            self.fc.weight[:, shape.hidden :] += torch.eye(shape.hidden)

    def begin(self, features):
        """What the rows of the text read, from the target's features."""
        return features

    def forward(self, tokens, features):
        """Features [batch, length, hidden] that follow `tokens`. `features` are those of the tokens before them."""
        return self.turned(self.fc(torch.cat([F.embedding(tokens, self.output), features], -1)))

    def logits(self, features):
        return F.linear(features, self.output)

    def tensors(self):
        """The parameters, by their names in the file."""
        return {"fc.weight": self.fc.weight, "fc.bias": self.fc.bias} | self.layer_tensors("layers.0.")

    def settings(self):
        return {"bias": True}


class Eagle3(Base):
    """Guesses a state of its own from token t and the state of token t - 1 (EAGLE-3: Li et al., arXiv:2503.01840).

    A state of the text is the product `fc` of the states that enter `layer_ids` of the target. The layer has an output matrix of
    its own, over the tokens of `vocabulary`.
    """

    def __init__(self, shape, output, layer_ids, vocabulary):
        super().__init__(shape, output, 2)
        self.layer_ids = tuple(layer_ids)
        self.vocabulary = vocabulary
        self.fc = nn.Linear(len(layer_ids) * shape.hidden, shape.hidden, bias=False)
        self.hidden_norm = llama.RmsNorm(shape.hidden, shape.epsilon)
        self.norm = llama.RmsNorm(shape.hidden, shape.epsilon)
        self.lm_head = nn.Linear(shape.hidden, len(vocabulary), bias=False)
        with torch.no_grad():
            self.lm_head.weight.copy_(output[vocabulary])

    def begin(self, features):
        return self.fc(features)

    def forward(self, tokens, states):
        embedded = self.layer.input_layernorm(F.embedding(tokens, self.output))
        return self.turned(states, torch.cat([embedded, self.hidden_norm(states)], -1))

    def logits(self, states):
        return self.lm_head(self.norm(states))

    def tensors(self):
        return {"fc.weight": self.fc.weight, "midlayer.hidden_norm.weight": self.hidden_norm.weight, "norm.weight": self.norm.weight,
                "lm_head.weight": self.lm_head.weight} | self.layer_tensors("midlayer.")

    def settings(self):
        return {"draft_vocab_size": len(self.vocabulary), "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(self.layer_ids)}}


def save(eagle, folder):
    """Writes a folder with BF16 weights. The embedding is the target's, and not in it."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shape = eagle.shape
    config = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
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
    } | eagle.settings()
    stored = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in eagle.tensors().items()}
    if eagle.layer_ids:
        vocabulary = eagle.vocabulary.cpu()
        stored["d2t"] = vocabulary - torch.arange(len(vocabulary))
        stored["t2d"] = torch.zeros(shape.vocabulary, dtype=torch.bool)
        stored["t2d"][vocabulary] = True
    file = folder / "model.safetensors"
    safetensors.torch.save_file(stored, file, metadata={"format": "pt"})
    file.chmod(0o644)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


@torch.no_grad()
def load(folder, eagle):
    """Fills in a layer from a folder that `save` wrote."""
    stored = safetensors.torch.load_file(pathlib.Path(folder) / "model.safetensors")
    for name, parameter in eagle.tensors().items():
        parameter.copy_(stored[name])
    return eagle.eval()
