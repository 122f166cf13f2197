"""Runs two streams at once with asyncio, and gives one of them up after some tokens. The server frees its slot within a round."""

import asyncio
import sys

from tandem_client import AsyncClient

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"


async def first_tokens(client: AsyncClient, prompt: str, number: int) -> str:
    async with client.generate(prompt, temperature=0, max_tokens=500, ignore_eos=True) as stream:
        async for _ in stream:
            if len(stream.outputs[0].tokens) >= number:
                break  # the end of the block cancels the request
    return stream.outputs[0].text


async def main() -> None:
    async with AsyncClient(ADDRESS, timeout=60) as client:
        whole, beginning = await asyncio.gather(
            client.complete("The princess wept bitterly, for", seed=3, max_tokens=60),
            first_tokens(client, "A soldier came marching along the road", 10))
        print(whole.text)
        print(beginning)


asyncio.run(main())
