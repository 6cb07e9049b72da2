"""The ledger: the log of every sweep, and the views that follow from it."""

from .hold import Hold
from .ledger import Ledger, SweepInfo

__all__ = ["Hold", "Ledger", "SweepInfo"]
