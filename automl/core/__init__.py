"""The terms that every part of a sweep shares: trial, event, goal, budget, specification."""

from .budget import Budget, read_budget
from .events import Begun, Command, Ended, Moved, Noted, Proposed, SweepEvent
from .goals import Constraint, Goal, parse_constraints, parse_duration, parse_goals
from .reports import ReportLog, ReportPoint
from .resources import Resources, read_resources
from .snapshot import Snapshot
from .spec import SweepSpec
from .trial import Trial, TrialState
from .trial_index import TrialIndex

__all__ = [
    "Begun",
    "Budget",
    "Command",
    "Constraint",
    "Ended",
    "Goal",
    "Moved",
    "Noted",
    "Proposed",
    "ReportLog",
    "ReportPoint",
    "Resources",
    "Snapshot",
    "SweepEvent",
    "SweepSpec",
    "Trial",
    "TrialIndex",
    "TrialState",
    "parse_constraints",
    "parse_duration",
    "parse_goals",
    "read_budget",
    "read_resources",
]
