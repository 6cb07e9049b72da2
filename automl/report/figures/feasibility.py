"""The probability that a configuration succeeds, as the suggester models it."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from automl.core import Trial, TrialState
from automl.report.effects import configurations, grid_of, moved
from automl.report.plotting import (
    INK,
    RED,
    Figure,
    Panel,
    axis,
    escape,
    figure,
    place,
    position,
    rounded,
    spread,
)
from automl.report.record import Record
from automl.report.success import SuccessModel
from search_spaces import Parameter

TITLE = "Probability of success"
NUM_AVERAGED = 16
MANY = 1500
FINE = 15


def panel(record: Record, success: SuccessModel | None = None) -> Panel:
    """The probability of success over the two parameters that change it most.

    Args:
        success: the model of failures if it is fitted already.
    """
    failed = [trial for trial in record.trials if trial.state is TrialState.FAILED]
    ended = [trial for trial in record.trials if trial.state.finished]
    if not failed:
        return Panel(
            "feasibility", TITLE, f"None of the {len(ended)} trials that ended has failed."
        )
    tunable = [name for name, parameter in record.space.parameters.items() if parameter.size != 1]
    if len(failed) == len(ended) or len(ended) < 4 or not tunable:
        return Panel(
            "feasibility",
            TITLE,
            f"{len(failed)} of {len(ended)} trials failed: too few to fit a model of failures.",
        )
    probability = success or SuccessModel(record)
    base = configurations(record)[:NUM_AVERAGED]
    moves = {name: probability.spread(name, base) for name in tunable}
    chosen = sorted(tunable, key=lambda name: -moves[name])[:2]
    caption = (
        f"{len(failed)} of {len(ended)} trials failed. The colour is the suggester's probability "
        f"of success for {' and '.join(chosen)}, which change it most; it is averaged over the "
        "tried values of other parameters. Crosses are failed trials, circles are others."
    )
    return Panel("feasibility", TITLE, caption, (_map(record, probability, base, chosen, ended),))


def _map(
    record: Record,
    probability: SuccessModel,
    base: Sequence[Mapping[str, Any]],
    chosen: list[str],
    ended: list[Trial],
) -> Figure:
    parameters = [record.space.parameters[name] for name in chosen]
    grids = [grid_of(parameter, FINE) for parameter in parameters]
    if len(chosen) == 1:
        grids.append([None])
    rows = []
    for second, first, params in product(grids[1], grids[0], base):
        changed = moved(record.space, params, chosen[0], first)
        rows.append(moved(record.space, changed, chosen[1], second) if len(chosen) > 1 else changed)
    z = probability(rows).reshape(len(grids[1]), len(grids[0]), -1).mean(2)
    heat = {
        "type": "heatmap",
        "x": rounded([position(parameters[0], value) for value in grids[0]]),
        "y": rounded([position(parameters[1], value) for value in grids[1]])
        if len(chosen) > 1
        else [0],
        "z": [rounded(row, 3) for row in z.tolist()],
        "zmin": 0,
        "zmax": 1,
        "meta": {"colors": ["var(--fails)", "var(--between)", "var(--succeeds)"]},
        "colorscale": [[0, "#f4b9a0"], [0.5, "#fbf6e9"], [1, "#a5d8c6"]],
        "colorbar": {"title": {"text": "succeeds"}, "tickformat": ".0%"},
        "hovertemplate": "%{z:.0%}<extra></extra>",
    }
    shown = [trial for trial in ended if all(name in trial.params for name in chosen)]
    marks = [_marks(shown, parameters, failed) for failed in (False, True)]
    return figure(
        [heat, *marks],
        440,
        xaxis=axis(parameters[0]),
        yaxis=axis(parameters[1]) if len(chosen) > 1 else {"visible": False},
    )


def _marks(ended: list[Trial], parameters: Sequence[Parameter], failed: bool) -> dict[str, Any]:
    trials = [trial for trial in ended if (trial.state is TrialState.FAILED) is failed]
    columns = [[place(p, t.params[p.name], t.number) for t in trials] for p in parameters]
    if len(trials) > MANY and len(columns) > 1:  # overlapping ones are drawn once
        rows = spread(list(zip(columns[0], columns[1], strict=True)), 150, 80)
        trials, columns = (
            [trials[row] for row in rows],
            [[column[row] for row in rows] for column in columns],
        )
    kinds = [(t.failure or str(t.state)).replace("_", " ") for t in trials]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "failed" if failed else "succeeded",
        "x": rounded(columns[0]),
        "y": rounded(columns[1]) if len(columns) > 1 else [0] * len(trials),
        "marker": {
            "symbol": "x" if failed else "circle-open",
            "color": RED if failed else INK,
            "size": 7 if len(trials) < 500 else 4,
            "line": {"width": 1.5, "color": RED if failed else INK},
        },
        "customdata": [trial.number for trial in trials],
        "text": [
            f"trial {t.number}: {escape(kind)}" for t, kind in zip(trials, kinds, strict=True)
        ],
        "hoverinfo": "text",
    }
