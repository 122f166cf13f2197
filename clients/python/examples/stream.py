"""Streams a completion, and says how drafting went."""

import sys

from tandem_client import Client

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"

with Client(ADDRESS, timeout=60) as client:
    stream = client.generate("Once upon a time there was a king who", temperature=0.7, seed=7, max_tokens=80)
    for part in stream:
        print(part.text, end="", flush=True)

    completion = stream.result()
    print(f"\n{completion.usage.completion_tokens} tokens, "
          f"{completion.speculation.acceptance_rate:.0%} of the drafted tokens were accepted")
