"""How long a sweep on Ray waits for the cluster's head, its nodes and its workers, in seconds."""

from typing import Final

CONNECT_SECONDS: Final = 5.0  # for a first answer of the address of a running cluster
PLACEMENT_SECONDS: Final = 60.0  # for Ray to reserve all slots, if their number is fixed
ROOM_SECONDS: Final = 3.0  # of them, after which the sweep says for what it waits
REGROUP_SECONDS: Final = 10.0  # that a gang waits before idle slots are reserved anew for it
IDLE_SECONDS: Final = 30.0  # after that an elastic sweep gives a slot back that no trial needs

HEAD_POLL_SECONDS: Final = 1.0  # between two checks of the head, and for the answer to one
# Without an answer of the head. Ray itself ends this process after 60 s, without any message.
HEAD_LOST_SECONDS: Final = 20.0
# The same for the raylet of this machine, and for the head of a Ray that was started here: nobody
# brings them back, and Ray itself ends this process 14 s after the raylet.
OWN_LOST_SECONDS: Final = 3.0

NODE_POLL_SECONDS: Final = 5.0  # between two checks of the nodes of idle workers
ALL_LOST_SECONDS: Final = 300.0  # for a new node, if no worker of the sweep is left
ELASTIC_SECONDS: Final = 1800.0  # the same if the number of workers is elastic: clouds are slow
