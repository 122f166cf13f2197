"""Asks for three outputs of one prompt, and for the target's log-probabilities."""

import sys

from tandem_client import Client

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"

with Client(ADDRESS) as client:
    completion = client.complete("The youngest brother", n=3, seed=11, temperature=0.8, max_tokens=20, logprobs=3,
                                 logprobs_with_text=True)
    for choice in completion.choices:
        total = sum(logprob for logprob in choice.logprobs if logprob is not None)
        print(f"{choice.index}: {choice.text!r}, log-probability {total:.1f}, seed {choice.seed}")
    print("at first:", ", ".join(f"{top.text!r} {top.logprob:.2f}" for top in completion.tokens[0].top))
