"""The ledger: events of every sweep, and the trials, attempts and reports that follow from them."""

from .ledger import Ledger, SweepInfo
from .memory import MemoryLedger
from .protocol import SweepLedger, SweepRecorder
from .recorder import Recorder

__all__ = ["Ledger", "MemoryLedger", "Recorder", "SweepInfo", "SweepLedger", "SweepRecorder"]
