"""Lets the model's chat template make the prompt of a conversation."""

import sys

from tandem_client import Client

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"
MESSAGES = [
    {"role": "system", "content": "You tell fairy tales."},
    {"role": "user", "content": "Once upon a time there was a miller."},
]

with Client(ADDRESS) as client:
    info = client.server_info()
    if not info.chat_template:
        sys.exit(f"{info.model} has no chat template: {info.chat_template_problem}")
    print(repr(client.render_chat(MESSAGES).prompt))
    print(client.complete(messages=MESSAGES, seed=5, max_tokens=40).text)
