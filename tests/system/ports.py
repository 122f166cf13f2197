"""Finds free ports, for the tests of this folder and of the chart."""

import pathlib
import random
import socket


def free_ports(count, hosts=("127.0.0.1",)):
    """Returns consecutive ports that are free on all of the hosts. The kernel gives them to nobody who asks for any port, so they are still
    free when a process of the test listens there, also after a restart."""
    lowest, highest = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    choice = [*range(10_000, lowest - count), *range(highest + 1, 65_536 - count)]
    while True:
        first = random.choice(choice)
        try:
            for port in range(first, first + count):
                for host in hosts:
                    with socket.socket() as one:
                        one.bind((host, port))
            return list(range(first, first + count))
        except OSError:
            pass
