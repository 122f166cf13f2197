"""Runs assisted generation of Hugging Face transformers on a GPU, for a comparison (bench/gpu.py). Needs torch and transformers, but
nothing of Tandem.

  python3 bench/transformers_assisted.py TARGET DRAFT [--gpu N]

The script prints lines of JSON: {"torch": …, "transformers": …, "device": …} if it can run here, and {"ready": true} when both models are
loaded. Then it answers each {"prompt_ids": […], "num_tokens": 128, "assisted": true} on standard input with {"token_ids": […],
"seconds": …, "tokens_per_second": …}. Decoding is greedy, in BF16, and ignores the end of text. transformers chooses how many tokens are
drafted. Exit code 3: something that the script needs is missing, and the last line on standard error names it."""

import argparse
import json
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"  # the models are folders
answers = sys.stdout
sys.stdout = sys.stderr  # libraries print to standard error


def missing(what):
    print(what, file=sys.stderr)
    sys.exit(3)


try:
    import transformers
    import torch
except ImportError as error:
    missing(f"{error.name} is not installed")


def answer(**fields):
    print(json.dumps(fields), file=answers, flush=True)


def load(folder, device):
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    dtype = {"dtype" if version >= (4, 56) else "torch_dtype": torch.bfloat16}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, **dtype).to(device).eval()
    model.generation_config.eos_token_id = None  # all runs have the same number of tokens
    model.generation_config.pad_token_id = 0
    return model


def generate(target, draft, prompt_ids, num_tokens):
    prompt = torch.tensor([prompt_ids], device=target.device)
    began = time.monotonic()
    output = target.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=num_tokens,
                             assistant_model=draft)
    token_ids = output[0, len(prompt_ids):].tolist()  # waits for the GPU
    seconds = time.monotonic() - began
    return {"token_ids": token_ids, "seconds": seconds, "tokens_per_second": len(token_ids) / seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("--gpu", type=int, default=0)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        missing("torch finds no GPU")
    device = torch.device("cuda", arguments.gpu)
    answer(torch=torch.__version__, transformers=transformers.__version__, device=torch.cuda.get_device_name(device))
    target, draft = (load(folder, device) for folder in (arguments.target, arguments.draft))
    answer(ready=True)
    with torch.inference_mode():
        for line in sys.stdin:
            request = json.loads(line)
            answer(**generate(target, draft if request["assisted"] else None, request["prompt_ids"], request["num_tokens"]))


if __name__ == "__main__":
    main()
