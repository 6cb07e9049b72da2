"""Asynchronous Hyperband: several brackets of successive halving at once (Li et al., JMLR 2018; MLSys 2020)."""

from __future__ import annotations

from typing import ClassVar

from .asha import AshaStopper


class HyperbandStopper(AshaStopper):
    """As `asha`, with brackets whose trials run longer before they are first compared, for curves that cross late."""

    name = "hyperband"
    num_brackets: ClassVar[int] = 3
