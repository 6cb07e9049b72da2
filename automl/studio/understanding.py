"""What the page Understand shows of a sweep: the figures of the report, made of its surrogates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from automl.errors import UsageError
from automl.report import conclusion
from automl.report.effects import Effect, Insight
from automl.report.figures import draw, feasibility
from automl.report.figures.contours import contours
from automl.report.plotting import Panel
from automl.report.record import Record
from automl.report.success import SuccessModel

MODELLED: Final = ("importance", "dependence", "calibration")
OBSERVED: Final = ("parallel",)


def insights(
    record: Record, found: Sequence[Insight], success: SuccessModel | None
) -> dict[str, Any]:
    """The answer in numbers, and the figures of the report that depend on surrogates."""
    panels = [draw(name, record, found) for name in (*MODELLED, *OBSERVED)]
    panels.append(feasibility.panel(record, success))
    return {
        "num_ended": sum(trial.state.finished for trial in record.trials),
        "recommended": conclusion.recommendation(record, found),
        "certainty": conclusion.certainty(record, found),
        "warnings": list(conclusion.warnings(record, found)),
        "kinds": success.kinds if success else [],
        "metrics": [_insight(one) for one in found],
        "panels": {panel.key: _panel(panel) for panel in panels},
    }


def between(record: Record, found: Sequence[Insight], question: Mapping[str, Any]) -> Any:
    """The contours of a metric over two parameters: `{"metric": ..., "x": ..., "y": ...}`.

    Raises:
        UsageError: there is no model of the metric, or no such pair of parameters.
    """
    insight = next((one for one in found if one.model.metric == question["metric"]), None)
    if insight is None or insight.doubt:
        raise UsageError(f"there is no believable model of {str(question['metric'])[:80]!r}")
    names = [str(question["x"]), str(question["y"])]
    known = [effect.name for effect in insight.effects]
    if names[0] == names[1] or not set(names) <= set(known):
        raise UsageError(f"x and y must be two of {', '.join(known)}")
    return contours(record, insight.model, *names)


def _panel(panel: Panel) -> dict[str, Any]:
    return {"title": panel.title, "caption": panel.caption, "figures": list(panel.figures)}


def _insight(insight: Insight) -> dict[str, Any]:
    model = insight.model
    return {
        "metric": model.metric,
        "aspect": model.aspect,
        "maximize": model.sign < 0,
        "doubt": insight.doubt,
        "fit": str(insight.calibration),
        "effects": [_effect(effect) for effect in insight.effects],
    }


def _effect(effect: Effect) -> dict[str, Any]:
    return {
        "name": effect.name,
        "grid": list(effect.grid),
        "middle": effect.middle.tolist(),
        "weight": effect.weight,
        "interval": np.quantile(effect.importance, [0.05, 0.95]).tolist(),
    }
