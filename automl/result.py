"""The result of a sweep, for your own program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

from search_spaces.errors import no_attribute

from .core import Snapshot, Trial, TrialState, arguments, ranking, text
from .errors import AutomlError, UsageError, needs

if TYPE_CHECKING:
    import pandas as pd

    from .report.recommendation import Recommendation


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

    @cached_property
    def trials(self) -> Sequence[Trial]:
        """Every trial by number."""
        return ranking.valued(self.snapshot.trials, self.snapshot.goals, self.snapshot.constraints)

    @property
    def best(self) -> Trial:
        """The best trial by the first goal: its `value` is what the goal compares.

        `value_from` says whether the objective returned it, or in which report it was. Its
        `metrics` are those of its last report, updated by what the objective returned.

        Raises:
            AutomlError: no trial has succeeded; the message quotes the commonest cause.
        """
        return self._valued([self._best()])[0]

    @property
    def recommended(self) -> Recommendation:
        """The tried configuration of which a model of all trials expects most, by the first goal.

        If `automl confirm` has trained the best again, it is the best of those by the new runs.
        `best` was selected for its score, in which it may have had luck. Both are the same if the
        model does not predict trials that it has not seen.

        Raises:
            AutomlError: no trial has succeeded.
        """
        self._best()  # raises if there is none
        found = import_module("automl.report.recommendation").recommended(self._record())
        return cast("Recommendation", found)

    @property
    def pareto(self) -> list[Trial]:
        """The trials on the Pareto front of all goals, by number."""
        return self._valued(self.snapshot.pareto)

    def to_pandas(self) -> pd.DataFrame:
        """One row per trial: its fields, `params.*` and `metrics.*`.

        `value` is what the goal compares; with several goals, `value.METRIC` is so for each. A
        metric that repeats one of these, `seconds` or `peak_memory_bytes` in every row is left out.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise UsageError(needs("to_pandas", "pandas", "report")) from error
        goals, several = self.snapshot.goals, len(self.snapshot.goals) > 1
        columns = {g.metric: f"value.{g.metric}" if several else "value" for g in goals}
        rows = [
            {k: v for k, v in trial.summary().items() if k not in ("params", "metrics")}
            | {
                columns[goal.metric]: self.snapshot.value(trial, index)
                for index, goal in enumerate(goals)
            }
            for trial in self.trials
        ]
        metrics = [{f"metrics.{k}": v for k, v in trial.metrics.items()} for trial in self.trials]
        names = dict.fromkeys(name for trial in self.trials for name in trial.params)
        params = pd.DataFrame(dict(map(self._column, names)), index=range(len(rows)))
        frame = pd.concat([pd.DataFrame(rows), params, pd.DataFrame(metrics)], axis=1)
        repeated = {**columns, "seconds": "seconds", "peak_memory_bytes": "peak_memory_bytes"}
        known = {f"metrics.{metric}": column for metric, column in repeated.items()}
        return frame.drop(
            columns=[
                metric
                for metric, column in known.items()
                if metric in frame
                and frame[metric].astype(float).equals(frame[column].astype(float))
            ]
        )

    def _column(self, name: str) -> tuple[str, pd.Series]:
        """A column of `to_pandas` that reads as the same values again, also from a CSV file.

        A whole number stays one if other trials have none, and a text that reads as another choice
        is in quotes.
        """
        import pandas as pd

        spec = self.snapshot.spec
        parameter = spec.known_space.parameters.get(name) if spec is not None else None
        values: list[Any] = [trial.params.get(name) for trial in self.trials]
        if parameter is not None and parameter.kind == "choice":
            fits = parameter.legal
            values = [parameter.text(v) if isinstance(v, str) and fits(v) else v for v in values]
        real = parameter is not None and parameter.kind == "float"
        column = pd.Series(values, dtype="float64" if real else object)
        return f"params.{name}", column if None in values else column.infer_objects()

    def save_report(self, path: str | os.PathLike[str]) -> None:
        """Write the report of the sweep as one HTML file.

        Raises:
            UsageError: the file cannot be written.
        """
        import_module("automl.report.page").save(self._record(), path)

    def figure(self, name: str = "") -> Any:
        """A figure of `optuna.visualization` as a `plotly.graph_objects.Figure`.

        Args:
            name: "progress", "parallel", "pareto", "curves", "importance", "dependence",
                "contours" or "timeline".

        Raises:
            UsageError: there is no such figure, or plotly is not installed.
        """
        arguments.text("name of a figure", name)
        return import_module("automl.integrations.optuna_view").figure(self.snapshot, name)

    def __getattr__(self, name: str) -> NoReturn:
        no_attribute("a result", name, dir(self))

    def _repr_html_(self) -> str:
        return cast("str", import_module("automl.report.page").card(self.snapshot))

    def __repr__(self) -> str:
        best = self.snapshot.best
        if best is None:
            found = text.why_no_best(self.snapshot)
        else:
            best = self.best
            metric = self.snapshot.goals[0].metric
            found = f"best trial {best.number} with {metric} {best.value:.6g} ({best.value_from})"
        early = text.why_early(self.snapshot)
        if self.snapshot.best is None:
            early = early.partition(":")[0]  # `found` names the cause
        parts = [self.state, f"{len(self.trials)} trials", found, *([early] if early else [])]
        return text.printable(f"Result({self.name!r}, {', '.join(parts)})", keep="\n")

    def _valued(self, trials: Sequence[Trial]) -> list[Trial]:
        known = self.snapshot
        return ranking.valued(trials, known.goals, known.constraints, known.spec)

    def _record(self) -> Any:
        kind = import_module("automl.report.record").Record
        return kind.stored(self._store, self.snapshot) if self._store else kind.of(self.snapshot)

    def _best(self) -> Trial:
        if self.snapshot.best is not None:
            return self.snapshot.best
        failed = self.snapshot.in_state(TrialState.FAILED)
        traceback = text.commonest_failure(failed)[1].traceback if failed else ""
        found = f"sweep {self.name!r}: {text.why_no_best(self.snapshot)}"
        found = f"{found}\n\n{traceback.rstrip()}" if traceback else found
        raise AutomlError(text.printable(found, keep="\n\t"))
