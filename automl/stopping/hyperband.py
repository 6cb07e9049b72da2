"""Asynchronous Hyperband: several brackets of ASHA (Li et al., JMLR 2018; MLSys 2020)."""

from typing import Any

from .asha import AshaStopper


class HyperbandStopper(AshaStopper):
    """ASHA in brackets; the later ones compare trials later, for curves that cross late."""

    name = "hyperband"

    def __init__(self, *args: Any, brackets: int = 3, **options: Any) -> None:
        super().__init__(*args, brackets=brackets, **options)
