"""`tandem drafter`, as the tests of swaps use it."""

import itertools
import re

import harness


def drafter(server, *arguments, code=0):
    """Returns what the command prints: on standard output, or on standard error if it is to fail with `code`."""
    ended = harness.run_cli("drafter", *arguments, "--connect", server.address)
    assert ended.returncode == code, ended.stderr
    return ended.stdout if code == 0 else ended.stderr


def roles(listing):
    """Returns {name: (role, requests, state)} of a list."""
    lines = itertools.takewhile(bool, listing.splitlines()[1:])
    return {name: (role, share, state) for name, role, share, state in
            (re.fullmatch(r"(\S+) +(\S+) +(\d+ %)  (.*)", line).groups() for line in lines)}


def heads(listing):
    """Returns (name, kind) of the heads of a list, or None. Other heads that were asked for must be there."""
    line = re.search(r"^heads: (none|(\S+) \(kind (\w+)\))$", listing, re.MULTILINE)
    return line and (line[2] or "none", line[3])
