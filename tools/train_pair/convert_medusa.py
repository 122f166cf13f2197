"""Converts a pickle of Medusa heads (medusa_lm_head.pt of FasterDecoding/Medusa) to the folder that Tandem reads.

The folder has the layout of vLLM's Medusa: config.json and model.safetensors. The sizes are those of the tensors. PyTorch reads
the pickle with weights_only, so that no code of the file runs.
"""
import argparse
import json
import pathlib
import re

from models import medusa
import torch

# HEAD.LAYER.linear.weight of a residual layer, and HEAD.LAYER.weight of the output matrix
KEY = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.(linear\.)?(weight|bias)")


def renamed(stored):
    """Returns the tensors by their names in vLLM's layout."""
    tensors, outputs = {}, {}
    for key, tensor in stored.items():
        match = KEY.fullmatch(key)
        if not match or (match[4] == "bias" and not match[3]):
            raise SystemExit(f"{key}: unknown tensor (want HEAD.LAYER.linear.weight, HEAD.LAYER.linear.bias and HEAD.LAYER.weight)")
        head, layer = int(match[1]), int(match[2])
        if match[3]:
            tensors[f"blocks.{head}.layers.{layer}.{match[4]}"] = tensor
        else:
            outputs[head] = layer
            tensors[f"lm_heads.{head}.weight"] = tensor
    check(tensors, outputs)
    return tensors


def check(tensors, outputs):
    """Heads are numbered from 0, and all have the same layers and sizes. `outputs` has the place of each output matrix."""
    if not outputs:
        raise SystemExit("no output matrix HEAD.LAYER.weight among the tensors")
    layers = outputs.get(0, 0)
    vocabulary, hidden = tensors[f"lm_heads.{min(outputs)}.weight"].shape
    has_bias = any(name.endswith(".bias") for name in tensors)
    want = {}
    for head in range(len(outputs)):
        want[f"lm_heads.{head}.weight"] = (vocabulary, hidden)
        for layer in range(layers):
            want[f"blocks.{head}.layers.{layer}.weight"] = (hidden, hidden)
            if has_bias:
                want[f"blocks.{head}.layers.{layer}.bias"] = (hidden,)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    wrong = sorted(name for name in want.keys() | found.keys() if want.get(name) != found.get(name))
    if layers == 0 or set(outputs.values()) != {layers} or wrong:
        detail = "".join(f"\n  {name}: {found.get(name, 'missing')}, want {want.get(name, 'none')}" for name in wrong)
        raise SystemExit(f"the heads do not have the same layers and sizes: output matrices at {outputs}{detail}")


def compare_config(path, heads, layers):
    """Says where config.json beside the pickle has other numbers than the tensors, which count."""
    if not path.exists():
        return
    config = json.loads(path.read_text())
    for field, size in (("medusa_num_heads", heads), ("medusa_num_layers", layers)):
        if config.get(field, size) != size:
            print(f"{path}: {field} is {config[field]}, but the tensors have {size}. The tensors count.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("pickle", help="medusa_lm_head.pt, or a folder that has it")
    add("out", help="folder that receives config.json and model.safetensors")
    add("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16", help="type of the weights (default: %(default)s)")
    args = parser.parse_args()

    pickle = pathlib.Path(args.pickle)
    if pickle.is_dir():
        pickle /= "medusa_lm_head.pt"
    tensors = renamed(torch.load(pickle, map_location="cpu", weights_only=True))
    heads = sum(name.startswith("lm_heads.") for name in tensors)
    layers = sum(name.startswith("blocks.0.") and name.endswith(".weight") for name in tensors)
    compare_config(pickle.parent / "config.json", heads, layers)
    vocabulary, hidden = tensors["lm_heads.0.weight"].shape
    medusa.write(args.out, tensors, vocabulary, getattr(torch, args.dtype))
    print(f"wrote {args.out}: {heads} heads of {layers} layers, hidden size {hidden}, {vocabulary} tokens")


if __name__ == "__main__":
    main()
