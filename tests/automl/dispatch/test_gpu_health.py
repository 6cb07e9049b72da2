"""A GPU that fails: other trials are not blamed, and a slot is given up."""

from __future__ import annotations

import pytest

from automl.dispatch.gangs import GangDispatcher
from automl.errors import AutomlError

pytestmark = pytest.mark.timeout(120)


class TwoSlots(GangDispatcher):
    """Two slots without workers."""

    slots = range(2)
    submit = close = _receive = _release = lambda *_: None


def test_a_slot_is_given_up_after_three_failures_in_a_row() -> None:
    two = TwoSlots()
    assert not two.attempt_ended(0, "broken")
    assert not two.attempt_ended(0, "broken")
    assert two.attempt_ended(0, "broken")
    assert two.num_slots == 1
    assert two.trouble == "worker 0 is out of use, since its GPU failed 3 times in a row: broken"
    assert not two.attempt_ended(1, "broken")
    assert not two.attempt_ended(1, "broken")
    with pytest.raises(AutomlError, match="no GPU of the sweep can be used"):
        two.attempt_ended(1, "broken")
