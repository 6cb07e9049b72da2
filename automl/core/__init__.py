"""The terms that every part of a sweep shares: trial, event, goal, budget, specification."""

from .arguments import parse_duration
from .events import (
    Answered,
    Begun,
    Closed,
    Command,
    Created,
    Ended,
    Leased,
    Moved,
    Noted,
    Proposed,
    SpecChanged,
    SweepEvent,
    TrialEvent,
)
from .goals import Constraint, Goal, parse_constraints, parse_goals
from .resources import Budget, Resources, read_budget
from .spec import SweepSpec
from .state import Snapshot, SweepState
from .trial import ReportLog, ReportPoint, Trial, TrialIndex, TrialState

__all__ = [
    "Answered",
    "Begun",
    "Budget",
    "Closed",
    "Command",
    "Constraint",
    "Created",
    "Ended",
    "Goal",
    "Leased",
    "Moved",
    "Noted",
    "Proposed",
    "ReportLog",
    "ReportPoint",
    "Resources",
    "Snapshot",
    "SpecChanged",
    "SweepEvent",
    "SweepSpec",
    "SweepState",
    "Trial",
    "TrialEvent",
    "TrialIndex",
    "TrialState",
    "parse_constraints",
    "parse_duration",
    "parse_goals",
    "read_budget",
]
