"""The only state of a sweep: its events, and the trials, attempts and reports that follow from them."""

from .ledger import Ledger, SweepInfo, check_name
from .memory import MemoryLedger
from .recorder import Recorder

__all__ = ["Ledger", "MemoryLedger", "Recorder", "SweepInfo", "check_name"]
