"""What a job asks on its nodes: the address for Ray's head, and whether all nodes have joined.

python -m automl.launch.nodes address
python -m automl.launch.nodes wait HOST:PORT --nodes N [--seconds S]
"""

import argparse
import logging
import socket
import sys
import time
from typing import Final

from automl.errors import UsageError

POLL_SECONDS: Final = 1.0


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
    """Run as a program; the exit status is 0, or 2 if Ray's head is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("address")
    wait = verbs.add_parser("wait")
    wait.add_argument("address")
    wait.add_argument("--nodes", type=int, required=True)
    wait.add_argument("--seconds", type=float, default=300.0)
    given = parser.parse_args()
    try:
        if given.verb == "address":
            import ray

            host = ray.util.get_node_ip_address()
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
