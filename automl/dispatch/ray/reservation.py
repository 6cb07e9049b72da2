"""Room for workers on a cluster: a placement group, which Ray grants as a whole or not at all."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from automl.core import Resources
from automl.dispatch.base import GangShape

ACCELERATOR: Final = "accelerator_type:"  # before the kind of its GPUs, among a node's resources


class Reservation:
    """Room for the workers of one gang. While it is pending, Ray's autoscaler sees it as demand.

    Args:
        shape: ranks that must be together get one bundle, which is always on one node.
        resources: of each worker.

    Attributes:
        slots: of its workers, one for each place.
        nodes: the ids of the places' nodes; "" while it is not granted.
        draining: its nodes are lost or about to be, so no attempt may begin there.
    """

    def __init__(self, shape: GangShape, resources: Resources) -> None:
        self.shape = shape
        self.slots: list[int] = []
        self.nodes = [""] * shape.ranks
        self.draining = False
        bundle = {key: value * shape.together for key, value in needs(resources).items()}
        # Of the nodes with room, Ray takes those that are the most used: few nodes per gang.
        self._group = placement_group([bundle] * (shape.ranks // shape.together), strategy="PACK")
        self.id: str = self._group.id.hex()

    @property
    def granted(self) -> bool:
        """Whether every place has a node."""
        return all(self.nodes)

    def strategy(self, place: int) -> PlacementGroupSchedulingStrategy:
        """Lets Ray start the worker of a place there."""
        bundle = place // self.shape.together
        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)

    def update(self, row: Mapping[str, Any]) -> bool:
        """Take in its row of Ray's table of placement groups; whether it is granted now."""
        if row.get("state") == "CREATED":
            nodes = row["bundles_to_node_id"]
            places = range(self.shape.ranks)
            self.nodes = [nodes[place // self.shape.together] for place in places]
        return self.granted

    def is_pending(self) -> bool:
        """Whether Ray has no room for it now; asks the head."""
        return bool(placement_group_table(self._group).get("state") != "CREATED")

    def remove(self) -> None:
        """Give the room back; workers that still run there die."""
        remove_placement_group(self._group)


def needs(resources: Resources) -> dict[str, float]:
    """What a worker needs, as Ray names it."""
    needed: dict[str, float] = {"CPU": resources.cpus, "GPU": resources.gpus}
    if resources.accelerator:
        # Ray's own way to ask for a kind: its nodes have 1 of it, which many can share.
        needed[ACCELERATOR + resources.accelerator] = 0.001
    return {key: value for key, value in needed.items() if value}


def reservation_rows() -> Mapping[str, Mapping[str, Any]]:
    """Ray's table of placement groups, by id."""
    return dict(placement_group_table())


def node_kinds() -> dict[str, str]:
    """The kind of each node's GPUs by the node's id, as Ray names it; "" if it has none."""
    return {node["NodeID"]: kind_of(node["Resources"]) for node in ray.nodes()}


def kind_of(resources: Mapping[str, float]) -> str:
    """The kind of a node's GPUs, as Ray names it; "" if it has none."""
    kinds = (name for name in resources if name.startswith(ACCELERATOR))
    return next(kinds, ACCELERATOR).removeprefix(ACCELERATOR)


def alive_nodes() -> set[str]:
    """The ids of the cluster's nodes, without those that are about to be taken away."""
    state = ray._private.state.state
    draining = set() if ray.util.client.ray.is_connected() else set(state.get_draining_nodes())
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]} - draining


def choose(free: Mapping[int, str], shape: GangShape) -> list[int] | None:
    """The slots for a gang, by rank: on the fewest nodes, ranks that must be together on one.

    Args:
        free: the node of each free slot.

    Returns:
        None if there are too few, or too few together.
    """
    nodes: dict[str, list[int]] = {}
    for slot in sorted(free):
        nodes.setdefault(free[slot], []).append(slot)
    # Nodes hold whole groups of ranks only. The fullest node first takes the fewest nodes; the last
    # one is that with the least room to spare.
    rooms = {node: len(slots) - len(slots) % shape.together for node, slots in nodes.items()}
    chosen: list[int] = []
    while len(chosen) < shape.ranks:
        missing = shape.ranks - len(chosen)
        fitting = [node for node, room in rooms.items() if room >= missing]
        if not any(rooms.values()):
            return None
        if fitting:
            node = min(fitting, key=lambda one: len(nodes[one]))
        else:
            node = max(rooms, key=lambda one: rooms[one])
        chosen += nodes[node][: min(missing, rooms.pop(node))]
    return chosen


def free_room(resources: Resources) -> Counter[str]:
    """How many more workers each node has room for now; none are known behind a client server."""
    rooms: Counter[str] = Counter()
    if ray.util.client.ray.is_connected():
        return rooms
    for node, free in ray._private.state.available_resources_per_node().items():
        counts = [int(free.get(key, 0.0) / one) for key, one in needs(resources).items()]
        rooms[node] = min(counts, default=0)
    return rooms
