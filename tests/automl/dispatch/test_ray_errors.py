"""How errors of Ray are told: the worker is lost, and the trial is not to blame."""

from __future__ import annotations

import pytest
import ray
from ray.core.generated.common_pb2 import ActorDiedErrorContext

from automl.dispatch.ray.attempt import _death
from workers.protocol import Cause


@pytest.mark.parametrize(
    "message",
    [
        "The actor died because its node has died. Node Id: dacdedc6\n"
        "\tthe actor's node was terminated unexpectedly: health check failed",
        "The actor died unexpectedly before finishing this task. Worker exit detail: Worker "
        "unexpectedly exits with a connection error code 2. End of file.",
    ],
)
def test_a_dead_actor_is_a_lost_worker(message: str) -> None:
    cause = ActorDiedErrorContext(
        actor_id=bytes(16), class_name="Actor", pid=140, error_message=message
    )
    death = _death(ray.exceptions.ActorDiedError(cause))
    assert (death.failure, death.cause, death.status) == ("preempted", Cause.LOST, None)
    assert death.message.startswith("the worker is gone: ")
    assert "class_name" not in death.message
