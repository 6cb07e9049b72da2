"""What a job asks on its nodes: the address for Ray's head, and whether all nodes have joined.

python -m automl.launch.nodes address [NODE ...] [--interface NAME]
python -m automl.launch.nodes wait HOST:PORT --nodes N [--seconds S]
"""

import argparse
import ipaddress
import logging
import socket
import sys
import time
from collections.abc import Iterable
from typing import Final

import psutil

from automl.errors import UsageError

_ANYWHERE: Final = "192.0.2.1"  # reserved for documentation; nothing is sent to it
_PROBE_PORT: Final = 9
POLL_SECONDS: Final = 1.0


def own_address(peers: Iterable[str] = (), interface: str = "") -> str:
    """The IPv4 address at which other nodes reach this one.

    The name of this machine is not asked: on many systems it means 127.0.1.1. Instead, the kernel
    says from which address it would send to a peer.

    Args:
        peers: names or addresses of other nodes; those that cannot be resolved are passed over.
        interface: name of the network interface to use; "" to find it.

    Raises:
        UsageError: there is no such interface, or it has no IPv4 address.
    """
    if interface:
        return _address_of(interface)
    for peer in (*peers, _ANYWHERE):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((peer, _PROBE_PORT))  # chooses a route, sends nothing
            except OSError:
                continue
            found = str(probe.getsockname()[0])
        if not ipaddress.ip_address(found).is_loopback:
            return found
    return "127.0.0.1"


def _address_of(interface: str) -> str:
    known = psutil.net_if_addrs()
    if interface not in known:
        raise UsageError(
            f"--interface: {socket.gethostname()} has no {interface!r}, it has {', '.join(known)}"
        )
    for address in known[interface]:
        if address.family == socket.AF_INET:
            return str(address.address)
    raise UsageError(f"--interface: {interface!r} has no IPv4 address")


def free_port(host: str) -> int:
    """A TCP port of this machine that nobody listens at."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def wait_for_nodes(address: str, num_nodes: int, seconds: float) -> int:
    """Wait until nodes have joined the Ray cluster, and return how many have.

    Args:
        address: HOST:PORT of Ray's head.
        seconds: to wait at most; then the nodes that are there must do.

    Raises:
        UsageError: Ray's head has not answered.
    """
    deadline = time.monotonic() + seconds
    while (problem := _connect(address)) is not None:
        if time.monotonic() > deadline:
            raise UsageError(
                f"Ray's head does not answer at {address} after {seconds:g} s ({problem}): "
                "its messages are above"
            )
        time.sleep(POLL_SECONDS)
    import ray

    try:
        while True:
            joined = sum(bool(node["Alive"]) for node in ray.nodes())
            if joined >= num_nodes or time.monotonic() > deadline:
                return joined
            time.sleep(POLL_SECONDS)
    finally:
        ray.shutdown()


def _connect(address: str) -> Exception | None:
    """Connect to Ray; why that fails. Its head listens before its own node has joined."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=POLL_SECONDS).close()
    except OSError as error:
        return error  # Ray would wait for minutes and then end this process
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        ray.shutdown()
        return error
    return None


def main() -> int:
    """Run as a program; the exit status is 0, or 2 if Ray's head or the interface is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    address = verbs.add_parser("address")
    address.add_argument("peers", nargs="*")
    address.add_argument("--interface", default="")
    wait = verbs.add_parser("wait")
    wait.add_argument("address")
    wait.add_argument("--nodes", type=int, required=True)
    wait.add_argument("--seconds", type=float, default=300.0)
    given = parser.parse_args()
    try:
        if given.verb == "address":
            host = own_address(given.peers, given.interface)
            print(f"{host}:{free_port(host)}")
        else:
            joined = wait_for_nodes(given.address, given.nodes, given.seconds)
            print(f"{joined} of {given.nodes} nodes have joined Ray at {given.address}", flush=True)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
