"""How long a sweep on Ray waits for the cluster, its nodes and its workers, in seconds."""

from typing import Final

CONNECT_SECONDS: Final = 5.0  # for a first answer of the address of a running cluster
PLACEMENT_SECONDS: Final = 60.0  # for Ray to reserve all slots, if their number is fixed
REGROUP_SECONDS: Final = 10.0  # that a gang waits before idle slots are reserved anew for it
IDLE_SECONDS: Final = 30.0  # after that an elastic sweep gives a slot back that no trial needs

NODE_POLL_SECONDS: Final = 5.0  # between two checks of the nodes of idle workers
ALL_LOST_SECONDS: Final = 300.0  # for a new node, if no worker of the sweep is left
ELASTIC_SECONDS: Final = 1800.0  # the same if the number of workers is elastic: clouds are slow
