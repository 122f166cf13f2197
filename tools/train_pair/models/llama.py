"""A model of the Llama architecture in PyTorch, and its folder in the layout of Hugging Face."""
import dataclasses
import json
import math
import pathlib
import shutil

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of a model. Input and output embeddings are one matrix."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    head: int
    context: int = 1024
    theta: float = 10000.0
    epsilon: float = 1e-5

    @staticmethod
    def parse(text, vocabulary):
        """Reads "hidden,layers,heads,kv_heads,inner,head"."""
        sizes = [int(size) for size in text.split(",")]
        if len(sizes) != 6:
            raise ValueError(f"a shape has six sizes, not {len(sizes)}: {text}")
        return Shape(vocabulary, *sizes)


class RmsNorm(nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x):
        x = x.float()
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon)


def rotate(x, cos, sin):
    """Rotary position embedding (RoFormer, arXiv:2104.09864) in the halves that Llama uses."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Layer(nn.Module):
    """A layer whose queries, keys and values are products of `inputs` rows side by side."""

    def __init__(self, shape, dropout, inputs=1):
        super().__init__()
        self.shape = shape
        self.dropout = dropout
        queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head
        self.q_proj = nn.Linear(inputs * shape.hidden, queries, bias=False)
        self.k_proj = nn.Linear(inputs * shape.hidden, keys, bias=False)
        self.v_proj = nn.Linear(inputs * shape.hidden, keys, bias=False)
        self.o_proj = nn.Linear(queries, shape.hidden, bias=False)
        self.gate_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.hidden, bias=False)
        self.input_layernorm = RmsNorm(shape.hidden, shape.epsilon)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.epsilon)

    def forward(self, x, cos, sin, cache=None, attended=None, mask=None):
        """`cache` is a pair of keys and values of earlier positions. It grows by those of x. Attention takes the norm of x, or else
        `attended`. `mask` [length, positions] says what each row sees (default: itself and all before it)."""
        batch, length, _ = x.shape
        shape = self.shape
        normed = self.input_layernorm(x) if attended is None else attended

        def split(projection, heads):
            return projection(normed).view(batch, length, heads, shape.head).transpose(1, 2)

        q = rotate(split(self.q_proj, shape.heads), cos, sin)
        k = rotate(split(self.k_proj, shape.kv_heads), cos, sin)
        v = split(self.v_proj, shape.kv_heads)
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        repeats = shape.heads // shape.kv_heads
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        is_causal = length > 1 and mask is None
        mixed = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, mask, is_causal=is_causal)
        x = x + self._drop(self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1)))
        normed = self.post_attention_layernorm(x)
        return x + self._drop(self.down_proj(F.silu(self.gate_proj(normed)) * self.up_proj(normed)))

    def _drop(self, x):
        return F.dropout(x, self.dropout, self.training)


class Llama(nn.Module):
    def __init__(self, shape, dropout=0.0):
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList([Layer(shape, dropout) for _ in range(shape.layers)])
        self.norm = RmsNorm(shape.hidden, shape.epsilon)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0, 0.02)
        for layer in self.layers:
            for out in (layer.o_proj, layer.down_proj):
                nn.init.normal_(out.weight, 0, 0.02 / math.sqrt(2 * shape.layers))
        frequencies = shape.theta ** -(torch.arange(0, shape.head, 2).float() / shape.head)
        angles = torch.arange(shape.context).float()[:, None] * frequencies[None]
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, caches=None):
        """Logits [batch, length, vocabulary]. `caches` has one list for each layer, at first empty."""
        first = caches[0][0].shape[2] if caches and caches[0] else 0
        at = slice(first, first + tokens.shape[1])
        x = self.embed_tokens(tokens)
        for i, layer in enumerate(self.layers):
            x = layer(x, self.cos[at], self.sin[at], None if caches is None else caches[i])
        return F.linear(self.norm(x), self.embed_tokens.weight)

    def parameter_count(self):
        return sum(parameter.numel() for parameter in self.parameters())


def _tensor_name(name):
    """The name that Hugging Face gives a parameter."""
    for projection in ("q_proj", "k_proj", "v_proj", "o_proj"):
        name = name.replace(f".{projection}.", f".self_attn.{projection}.")
    for projection in ("gate_proj", "up_proj", "down_proj"):
        name = name.replace(f".{projection}.", f".mlp.{projection}.")
    return f"model.{name}"


def _config(shape):
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": shape.vocabulary - 2,
        "eos_token_id": shape.vocabulary - 1,
        "head_dim": shape.head,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.inner,
        "max_position_embeddings": shape.context,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.epsilon,
        "rope_scaling": None,
        "rope_theta": shape.theta,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vocab_size": shape.vocabulary,
    }


def save(model, folder, tokenizer_folder):
    """Writes a model folder with BF16 weights and a copy of the tokenizer's files."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        _tensor_name(name): parameter.detach().to(torch.bfloat16).contiguous()
        for name, parameter in model.named_parameters()
    }
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_config(model.shape), indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(pathlib.Path(tokenizer_folder) / name, folder / name)


def load(folder):
    """Reads a model folder that `save` wrote, as F32."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    shape = Shape(
        vocabulary=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        inner=config["intermediate_size"],
        head=config["head_dim"],
        context=config["max_position_embeddings"],
        theta=config["rope_theta"],
        epsilon=config["rms_norm_eps"],
    )
    model = Llama(shape)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[_tensor_name(name)])
    return model.eval()
