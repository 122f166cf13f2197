"""Shows a completion while it arrives, colored by the sources of its tokens. In a notebook, `show` draws into the cell."""

import sys

from tandem_client import Client

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"

with Client(ADDRESS) as client:
    completion = client.show("In a deep forest there lived", temperature=0, max_tokens=60)
    for token in completion.tokens[:8]:
        print(f"{token.text!r:12} {token.source.value:10} {token.logprob:.2f}")
