"""The ledger: events of every sweep, and the trials, attempts and reports that follow from them."""

from .ledger import Ledger
from .memory import MemoryLedger
from .protocol import SweepLedger, SweepRecorder
from .reader import SweepInfo
from .recorder import Recorder

__all__ = ["Ledger", "MemoryLedger", "Recorder", "SweepInfo", "SweepLedger", "SweepRecorder"]
