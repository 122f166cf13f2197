"""Completes a batch of prompts, eight at a time, with a display of the progress."""

import sys

from tandem_client import Client, TandemError

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"
PROMPTS = [f"There was once a {animal} who" for animal in ("king", "wolf", "miller", "fox", "tailor", "queen", "bear", "mouse")]

with Client(ADDRESS) as client:
    for prompt, result in zip(PROMPTS, client.map(PROMPTS, concurrency=8, progress=True, return_errors=True, seed=1, max_tokens=40)):
        if isinstance(result, TandemError):
            print(f"{prompt}: failed: {result}")
        else:
            print(f"{prompt}{result.text!r} ({result.speculation.alpha:.2f})")
