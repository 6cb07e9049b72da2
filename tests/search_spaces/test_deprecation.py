"""A deprecated function warns whoever calls it, and works."""

import pytest

from search_spaces.deprecation import deprecated


@deprecated("0.4", instead="`automl.sweep`")
def old(value: int, *, factor: int = 2) -> int:
    """Doubles."""
    return value * factor


def test_a_deprecated_function_warns_at_the_call_and_works() -> None:
    words = "old is deprecated since 0.4 and may go in 0.6: use `automl.sweep`"
    with pytest.warns(FutureWarning, match=words) as caught:
        assert old(3, factor=5) == 15
    assert caught[0].filename == __file__
    assert (old.__name__, old.__doc__) == ("old", "Doubles.")
