"""Bayesian hyperparameter optimisation: which trial is run next. Part of automl-sweep."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import AutomlError, TrialFailure, UsageError

if TYPE_CHECKING:
    from search_spaces import Choice, Float, Int, Space
    from workers.own_loop import knobs
    from workers.protocol import Metric

    from .optimizer import Optimizer
    from .result import Result
    from .sweeps import load, simulate, sweep

__version__ = "0.2.0"  # the one place: pyproject.toml reads it from here

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
    "knobs",
    "load",
    "simulate",
    "sweep",
]

# Imported when they are first asked for: `automl status` must not wait for torch and Ray.
_LAZY = {
    "BayesSampler": "automl.integrations.optuna_sampler",
    "Choice": "search_spaces",
    "Float": "search_spaces",
    "Int": "search_spaces",
    "Metric": "automl.core.goals",
    "Optimizer": "automl.optimizer",
    "Result": "automl.result",
    "Space": "search_spaces",
    "knobs": "workers.own_loop",
    "load": "automl.sweeps",
    "simulate": "automl.sweeps",
    "sweep": "automl.sweeps",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        from search_spaces.errors import no_attribute

        no_attribute(f"module {__name__!r}", name, __all__)
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
