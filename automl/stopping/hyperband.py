"""Asynchronous Hyperband: several brackets of ASHA (Li et al., JMLR 2018; MLSys 2020)."""

from typing import ClassVar

from .asha import AshaStopper


class HyperbandStopper(AshaStopper):
    """ASHA in three brackets; the later ones compare trials later, for curves that cross late."""

    name = "hyperband"
    num_brackets: ClassVar[int] = 3
