"""The result of a sweep, for your own program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .core import Snapshot, Trial
from .errors import UsageError

if TYPE_CHECKING:
    import pandas as pd


class Result:
    """A sweep at the time of the snapshot.

    Args:
        snapshot: of the sweep; everything else follows from it.
        store: folder or database URL of the sweep; None if it is not stored.
    """

    def __init__(self, snapshot: Snapshot, store: str | None = None) -> None:
        self.snapshot = snapshot
        self._store = store if store is None or "://" in store else os.path.abspath(store)  # noqa: PTH100

    @property
    def name(self) -> str:
        """The sweep's name."""
        return self.snapshot.sweep

    @property
    def state(self) -> str:
        """Either "finished", "interrupted" (it can be resumed), "failed" or "running"."""
        return self.snapshot.state

    @property
    def trials(self) -> Sequence[Trial]:
        """Every trial by number."""
        return self.snapshot.trials

    @property
    def best(self) -> Trial | None:
        """The best trial by the first goal; None if none has succeeded."""
        return self.snapshot.best

    @property
    def pareto(self) -> list[Trial]:
        """The trials on the Pareto front of all goals, by number."""
        return self.snapshot.pareto

    def to_pandas(self) -> pd.DataFrame:
        """One row per trial: its fields, `params.*` and `metrics.*`.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise UsageError("to_pandas needs pandas: install automl[report]") from error
        rows = [
            {k: v for k, v in trial.summary().items() if k not in ("params", "metrics")}
            | {f"params.{key}": value for key, value in trial.params.items()}
            | {f"metrics.{key}": value for key, value in trial.metrics.items()}
            for trial in self.trials
        ]
        return pd.DataFrame(rows)

    def save_report(self, path: str | os.PathLike[str]) -> None:
        """Write the report of the sweep as one HTML file."""
        record = import_module("automl.report.record").Record
        found = (
            record.stored(self._store, self.snapshot) if self._store else record.of(self.snapshot)
        )
        import_module("automl.report.page").save(found, path)

    def figure(self, name: str) -> Any:
        """A figure of the report as a `plotly.graph_objects.Figure`, which notebooks show.

        Args:
            name: "progress", "parallel", "pareto", "curves", "importance", "dependence",
                "feasibility", "calibration", "memory" or "timeline". If the report has several of
                this kind, the first.

        Raises:
            UsageError: there is no such figure, too few trials to draw it, or plotly is not
                installed.
        """
        return import_module("automl.report.figures").figure(self.snapshot, name)

    def _repr_html_(self) -> str:
        """The answer and the best trials, as notebooks show them."""
        found: str = import_module("automl.report.page").card(self.snapshot)
        return found

    def __repr__(self) -> str:
        best = self.best
        found = f"best trial {best.number}" if best else "no successful trial"
        return f"Result({self.name!r}, {self.state}, {len(self.trials)} trials, {found})"
