"""The ledger: the log of every sweep, and the views that follow from it."""

from .ledger import Ledger, SweepInfo
from .recorder import Recorder

__all__ = ["Ledger", "Recorder", "SweepInfo"]
