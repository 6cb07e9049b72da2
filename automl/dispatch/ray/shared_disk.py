"""Finds out which nodes of a Ray cluster see a folder of this machine."""

import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from workers.files.folder import Folder

ANSWER_SECONDS: Final = 30.0  # a node that has not answered by then counts as one that sees it


def nodes_without(folder: Folder) -> list[str]:
    """Addresses of the nodes that do not see a folder of this machine, sorted.

    A file of a random name is written to the folder, and a task on each node looks for it.

    Raises:
        OSError, StoreError: the folder cannot be written.
    """
    nodes = {
        node["NodeID"]: str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]
    }
    if len(nodes) < 2:
        return []
    folder.make()
    token = f"token-{secrets.token_hex(16)}"
    folder.open(token, "xb").close()
    try:
        looks = ray.remote(num_cpus=0, max_retries=0)(_sees)
        found = {
            looks.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
            ).remote(str(folder.path / token)): address
            for node, address in nodes.items()
        }
        ready, _ = ray.wait(list(found), num_returns=len(found), timeout=ANSWER_SECONDS)
        without = set()
        for ref in ready:
            with suppress(ray.exceptions.RayError):  # the node is gone
                if not ray.get(ref):
                    without.add(found[ref])
    finally:
        folder.unlink(token)
    return sorted(without)


def _sees(path: str) -> bool:
    return Path(path).exists()
