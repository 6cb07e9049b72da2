"""The terms that every part of a sweep shares: trial, event, goal, budget, specification."""

from .budget import Budget, read_budget
from .durations import parse_duration
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
from .reports import ReportLog, ReportPoint
from .resources import Resources
from .snapshot import Activity, Snapshot
from .spec import SweepSpec
from .state import SweepState
from .trial import Trial, TrialState
from .trial_index import TrialIndex

__all__ = [
    "Activity",
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
