"""Why a configuration was suggested: the terms of the acquisition beside the best alternative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workers.protocol import Params


@dataclass(frozen=True)
class Explanation:
    """The value of a configuration, and of the best other one that the search finds.

    Args:
        terms: of the configuration, by name, as logarithms; they add up to its value.
        other: the best alternative; None if there is none.
        other_terms: its terms.
    """

    terms: Mapping[str, float]
    other: Params | None
    other_terms: Mapping[str, float]
