"""Earlier sweeps of the same store that a sweep learns from, recorded in its spec when it begins.

So neither a resumed sweep nor an equal seed depends on what the store gets or loses later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from automl.core import Snapshot, SweepSpec
from automl.core.plugin_choice import PluginChoice, choose
from automl.core.ranking import value
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import EarlierSweep, Suggester
from automl.suggesters.user_prior import LIKE
from search_spaces import Space

MAX_SWEEPS: Final = 10  # that `auto` takes
MAX_LOOKED_AT: Final = 50  # of the newest sweeps
MAX_RECORDED: Final = 100  # trials of a sweep
MIN_RECORDED: Final = 8  # trials with a value, of a sweep that `auto` takes
MIN_SHARED: Final = 0.5  # of the parameters, likewise


def with_earlier(
    ledger: Ledger, spec: SweepSpec, suggester: PluginChoice[Suggester] | None = None
) -> SweepSpec:
    """The spec of a new sweep with the trials of the earlier sweeps that its prior names.

    Args:
        suggester: of the sweep; None for the one that the spec names.

    Raises:
        UsageError: a sweep is unknown or teaches nothing, or the suggester would ignore it.
    """
    choice = suggester or choose(SUGGESTERS, spec.suggester)
    learns = choice.kind(SUGGESTERS).uses_context
    names = [one.removeprefix(LIKE) for one in spec.learns if one.startswith(LIKE)]
    found = _found(ledger, spec) if "auto" in names and learns else {}
    named = [name for name in names if name != "auto"]
    earlier = {name: _recorded(ledger.snapshot(name), spec) for name in named}
    for name, table in earlier.items():
        if not table["params"]:
            raise UsageError(
                f"{LIKE}{name}: the sweep has no successful trial with {spec.goals[0].metric} "
                "and a parameter that is tuned here"
            )
    if earlier and not learns:
        raise UsageError(
            f"the suggester {choice.name!r} ignores earlier sweeps: leave like: out, or use 'bayes'"
        )
    return replace(spec, earlier={**found, **earlier})


def sweeps_of(spec: SweepSpec) -> Sequence[EarlierSweep]:
    """The earlier sweeps that a spec has recorded."""
    return [
        EarlierSweep(name, table["params"], {m: _floats(v) for m, v in table["losses"].items()})
        for name, table in spec.earlier.items()
    ]


def _found(ledger: Ledger, spec: SweepSpec) -> Mapping[str, Any]:
    """The sweeps that share most of the parameters, then the newest, with their trials."""
    newest = sorted(ledger.sweeps(), key=lambda info: -info.created)[:MAX_LOOKED_AT]
    shares = {
        info.name: _shared(ledger.spec(info.name), spec)
        for info in newest
        if info.num_trials >= MIN_RECORDED
    }
    found: dict[str, Any] = {}
    for name in sorted(shares, key=lambda name: -shares[name]):
        if len(found) == MAX_SWEEPS or shares[name] < MIN_SHARED:
            break
        table = _recorded(ledger.snapshot(name), spec)
        if len(table["params"]) >= MIN_RECORDED:
            found[name] = table
    return found


def _shared(earlier: SweepSpec, spec: SweepSpec) -> float:
    """The part of the parameters that both tune; 0 if the earlier sweep has another goal."""
    if earlier.goals[0].metric != spec.goals[0].metric:
        return 0.0
    parameters, others = spec.space.parameters, earlier.space.parameters
    same = [name for name, p in parameters.items() if type(others.get(name)) is type(p)]
    return len(same) / max(len(parameters), 1)


def _recorded(snapshot: Snapshot, spec: SweepSpec) -> dict[str, Any]:
    """Parameters, and the loss by each goal of the sweep, of the first successful trials."""
    rows = [
        (_tuned(trial.params, spec.space), [value(trial, goal) for goal in spec.goals])
        for trial in snapshot.trials
    ]
    rows = [row for row in rows if row[0] and row[1][0] is not None][:MAX_RECORDED]
    return {
        "params": [params for params, _ in rows],
        "losses": {
            goal.metric: [None if (one := v[i]) is None else goal.loss(one) for _, v in rows]
            for i, goal in enumerate(spec.goals)
        },
    }


def _tuned(params: Mapping[str, Any], space: Space) -> dict[str, Any]:
    return {name: v for name, v in params.items() if name in space.parameters}


def _floats(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if one is None else float(one) for one in values]
