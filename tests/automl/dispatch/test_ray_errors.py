"""How errors of Ray are told to a person."""

from __future__ import annotations

import ray
from ray.core.generated.common_pb2 import ActorDiedErrorContext

from automl.dispatch.ray.attempt import _explain


def test_a_lost_node_is_named_in_place_of_the_details_of_its_actor() -> None:
    cause = ActorDiedErrorContext(
        actor_id=bytes(16),
        class_name="Actor",
        pid=140,
        name="nmt worker 0 3a2b12",
        node_ip_address="10.77.0.4",
        error_message="The actor died because its node has died. Node Id: dacdedc6\n"
        "\tthe actor's node was terminated unexpectedly: health check failed",
    )
    assert _explain(ray.exceptions.ActorDiedError(cause)) == (
        "crashed",
        "the worker (process 140) is gone: its node 10.77.0.4 was lost",
    )


def test_the_class_and_ids_of_an_actor_are_not_told() -> None:
    message = "The actor died unexpectedly before finishing this task."
    cause = ActorDiedErrorContext(actor_id=bytes(16), class_name="Actor", error_message=message)
    kind, text = _explain(ray.exceptions.ActorDiedError(cause))
    assert kind == "crashed"
    assert text.endswith("before finishing this task.")
