"""The ledger: the log of every sweep, and the views that follow from it."""

from .ledger import Hold, Ledger, SweepInfo

__all__ = ["Hold", "Ledger", "SweepInfo"]
