"""Converts a pickle of a layer of EAGLE (pytorch_model.bin of SafeAILab/EAGLE) to the folder that Tandem reads.

The folder has config.json, as it was, and model.safetensors. PyTorch reads the pickle with weights_only, so that no code of the
file runs.
"""
import argparse
import pathlib
import re
import shutil

import safetensors.torch
import torch

KNOWN = re.compile(r"fc\.(weight|bias)|embed_tokens\.weight|lm_head\.weight|norm\.weight|[dt]2[td]|"
                   r"(layers\.0|midlayer)\.(self_attn\.[qkv]_proj\.(weight|bias)|"
                   r"(self_attn\.o_proj|mlp\.(gate|up|down)_proj|post_attention_layernorm|hidden_norm|input_layernorm)\.weight)")
# Buffers of older releases, which follow from config.json
BUFFERS = re.compile(r"(layers\.0|midlayer)\.self_attn\.rotary_emb\..*")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="folder with config.json and pytorch_model.bin")
    parser.add_argument("out", help="folder to make")
    args = parser.parse_args()
    folder, out = pathlib.Path(args.folder), pathlib.Path(args.out)
    tensors = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items() if not BUFFERS.fullmatch(name)}
    unknown = sorted(name for name in tensors if not KNOWN.fullmatch(name))
    if unknown:
        raise SystemExit(f"unknown tensors: {', '.join(unknown)} (want those of EAGLE-1, EAGLE-2 or EAGLE-3)")
    if "fc.weight" not in tensors:
        raise SystemExit("no tensor fc.weight: this is no layer of EAGLE")
    out.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    if (folder / "config.json").resolve() != (out / "config.json").resolve():
        shutil.copyfile(folder / "config.json", out / "config.json")
    print(f"wrote {out}: {len(tensors)} tensors")


if __name__ == "__main__":
    main()
