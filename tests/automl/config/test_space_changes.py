"""Changes of a stored space by overrides."""

from __future__ import annotations

import pytest

from automl.config.overrides import with_changes
from automl.errors import ConfigError
from search_spaces import Choice, Float, Space

SPACE = Space(Float("lr", 1e-5, 1e-1, log=True), Choice("optimizer", ["sgd", "adam"]))


def test_a_field_that_is_not_named_stays() -> None:
    changed = with_changes(SPACE, ["space.lr.high=0.5", "space.optimizer=[adam, lion]"])
    lr, optimizer = changed.parameters["lr"], changed.parameters["optimizer"]
    assert isinstance(lr, Float)
    assert isinstance(optimizer, Choice)
    assert (lr.low, lr.high, lr.log) == (1e-5, 0.5, True)
    assert optimizer.choices == ("adam", "lion")


@pytest.mark.parametrize("name", ["lr", "optimizer", "new"])
@pytest.mark.parametrize(
    ("given", "shown"),
    [("5", "5"), ("0", "0"), ("false", "false"), ("null", "nothing"), ("auto", "'auto'")],
)
def test_a_value_alone_is_no_entry(name: str, given: str, shown: str) -> None:
    rule = "a list of choices or {low, high, log, type, when, affects, default} is needed"
    with pytest.raises(ConfigError) as caught:
        with_changes(SPACE, [f"space.{name}={given}"])
    assert f"space.{name}: {rule}, got {shown}" in str(caught.value)
