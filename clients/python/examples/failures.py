"""What a failure says, and how a client waits for a busy server."""

import sys

from tandem_client import Client, InvalidArgumentError, RetryPolicy, TandemError

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"

# A refused request is sent again when the server says so, at most ten times and within two minutes.
with Client(ADDRESS, timeout=180, retry=RetryPolicy(max_attempts=10, max_seconds=120)) as client:
    try:
        client.complete("Once upon a time", top_p=1.5)
    except InvalidArgumentError as error:
        print(error.message)

    try:
        client.complete("Once upon a time", max_tokens=100_000, ignore_eos=True, timeout=0.2)
    except TandemError as error:  # the server breaks off, or the context ends the output first
        print(f"{error.code.name} after {sum(len(output.tokens) for output in error.outputs)} tokens")
