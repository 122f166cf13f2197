"""`tandem drafter` and metrics, as the tests of swaps use them."""

import itertools
import re
import urllib.request

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


def read_metric(server, process, series):
    """Returns the value of a series of a process, or None if there is no such series. `series` is a regular expression."""
    address = re.search(rf"{process}: .*metrics: (http://\S+/metrics)", server.log()).group(1)
    with urllib.request.urlopen(address, timeout=5) as page:
        found = re.search(rf"^{series} (\S+)$", page.read().decode(), re.M)
    return found and float(found.group(1))
