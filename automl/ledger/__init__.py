"""The ledger: the log of every sweep, and the views that follow from it."""

from .ledger import Ledger
from .memory import MemoryLedger, MemoryRecorder
from .reader import SweepInfo
from .recorder import Recorder

SweepLedger = Ledger | MemoryLedger
SweepRecorder = Recorder | MemoryRecorder

__all__ = [
    "Ledger",
    "MemoryLedger",
    "Recorder",
    "SweepInfo",
    "SweepLedger",
    "SweepRecorder",
]
