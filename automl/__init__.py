"""Bayesian hyperparameter optimisation: which trial is run next."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from search_spaces import Choice, Float, Int, Space

from .errors import AutomlError, TrialFailure, UsageError

if TYPE_CHECKING:
    from workers.protocol import Metric

    from .optimizer import Optimizer
    from .result import Result
    from .simulation import simulate
    from .sweeps import load, sweep

__all__ = [
    "AutomlError",
    "BayesSampler",
    "Choice",
    "Float",
    "Int",
    "Metric",
    "Optimizer",
    "Result",
    "Space",
    "TrialFailure",
    "UsageError",
    "load",
    "simulate",
    "sweep",
]

# Imported when they are first asked for: `automl status` must not wait for torch and Ray.
_LAZY = {
    "BayesSampler": "integrations.optuna_sampler",
    "Metric": "core.metrics",
    "Optimizer": "optimizer",
    "Result": "result",
    "load": "sweeps",
    "simulate": "simulation",
    "sweep": "sweeps",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
