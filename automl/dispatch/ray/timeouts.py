"""How long a sweep on Ray waits for the cluster's head, its nodes and its workers, in seconds."""

from typing import Final

CONNECT_SECONDS: Final = 5.0  # for a first answer of the address of a running cluster
PLACEMENT_SECONDS: Final = 60.0  # for Ray to reserve all slots when the sweep begins

HEAD_POLL_SECONDS: Final = 1.0  # between two checks of the head, and for the answer to one
# Without an answer of the head. Ray itself ends this process after 60 s, without any message.
HEAD_LOST_SECONDS: Final = 20.0

NODE_POLL_SECONDS: Final = 5.0  # between two checks of the nodes
SLOW_START_SECONDS: Final = 20.0  # after that the sweep says that a worker has not started
WORKER_START_SECONDS: Final = 60.0  # after that a worker that has not started may lack a node
ALL_LOST_SECONDS: Final = 300.0  # for a new node, if no worker of the sweep is left
ADDRESS_SECONDS: Final = 120.0  # for the first rank of an attempt to open a rendezvous
