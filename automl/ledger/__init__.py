"""The ledger: the log of every sweep, and the views that follow from it."""

from .ledger import Ledger
from .memory import MemoryLedger
from .protocol import LogRecord, SweepLedger, SweepRecorder
from .reader import SweepInfo
from .recorder import Recorder

__all__ = [
    "Ledger",
    "LogRecord",
    "MemoryLedger",
    "Recorder",
    "SweepInfo",
    "SweepLedger",
    "SweepRecorder",
]
