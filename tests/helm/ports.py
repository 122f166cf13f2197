import pathlib
import random
import socket


def free_ports(count):
    """Returns free ports. The kernel gives them to nobody who asks for any port, so they are still free when a process of the test listens
    there."""
    lowest, highest = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    choice = [*range(10_000, lowest), *range(highest + 1, 65_536)]
    found = set()
    while len(found) < count:
        port = random.choice(choice)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                found.add(port)
            except OSError:
                pass
    return sorted(found)
