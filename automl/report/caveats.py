"""What makes the answer of a sweep doubtful, in sentences that the summary and the report share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from automl.core import text
from automl.core.snapshot import Snapshot
from automl.core.trial import Trial, TrialState
from search_spaces import Choice, Float, Int, Space

EDGE: Final = 0.02
FEW_A_PARAMETER: Final = 3
DOMINATED: Final = 0.75


def caveats(snapshot: Snapshot, space: Space) -> Iterator[str]:
    """Everything that can be said from the trials alone; nothing where none has succeeded."""
    best = snapshot.best
    if best is None:
        return
    yield from at_bounds(best, space)
    yield from _few(snapshot, space)
    yield from _failing(snapshot, space)
    yield from _skipping(snapshot)


def at_bounds(best: Trial, space: Space) -> Iterator[str]:
    """Parameters whose best value hugs the end of its range."""
    for name, value in best.params.items():
        parameter = space.parameters.get(name)
        if isinstance(parameter, Choice | None) or parameter.size == 1:
            continue
        assert isinstance(parameter, Float | Int), "there are three kinds of parameters"
        unit = parameter.to_unit(value)
        if unit <= EDGE or unit >= 1 - EDGE:
            bound = parameter.low if unit < 0.5 else parameter.high
            yield f"{name}={text.number(value)} is at the edge of its range ({text.number(bound)}): widen it?"


def _few(snapshot: Snapshot, space: Space) -> Iterator[str]:
    tunable = sum(parameter.size != 1 for parameter in space.parameters.values())
    told = sum(text.goal_value(trial, snapshot) is not None for trial in snapshot.trials)
    if snapshot.state != "running" and told < FEW_A_PARAMETER * tunable:
        few, many = f"{told} trial{'s' * (told != 1)}", f"{tunable} parameter{'s' * (tunable != 1)}"
        yield f"{few} told something of {many}: too few to be sure of the best"


def _failing(snapshot: Snapshot, space: Space) -> Iterator[str]:
    failed = snapshot.in_state(TrialState.FAILED)
    if len(failed) * 2 > len(snapshot.trials):
        yield f"{len(failed)} of {len(snapshot.trials)} trials failed:{text.reasons(failed)}"
    if culprit := dominating(
        failed, [t for t in snapshot.trials if t.state.finished and not t.failure], space
    ):
        yield culprit


def _skipping(snapshot: Snapshot) -> Iterator[str]:
    """Updates that were left out because a gradient was not finite."""
    found = [trial for trial in snapshot.trials if trial.metrics.get("skipped_updates")]
    if found:
        most = max(found, key=lambda trial: trial.metrics["skipped_updates"])
        share = text.number(most.metrics["skipped_updates"])
        if "updates" in most.metrics:
            share += f" of {text.number(most.metrics['updates'])}"
        trials = "1 trial" if len(found) == 1 else f"{len(found)} trials"
        yield f"{trials} skipped updates whose gradients were not finite, trial {most.number} most: {share}"


def dominating(failed: Sequence[Trial], succeeded: Sequence[Trial], space: Space) -> str | None:
    """A sentence about the one value, or end of a range, that most failures share and few successes do."""
    if len(failed) < 3 or not succeeded:
        return None
    best: tuple[float, str] = (0.0, "")
    for label, holds in _groups(space):
        share = sum(map(holds, (t.params for t in failed))) / len(failed)
        usual = sum(map(holds, (t.params for t in succeeded))) / len(succeeded)
        if share >= DOMINATED and usual <= share / 2 and share - usual > best[0]:
            best = (
                share - usual,
                f"{share:.0%} of the failures have {label}, {usual:.0%} of the successes do",
            )
    return best[1] or None


def _groups(space: Space) -> Iterator[tuple[str, Any]]:
    """Each value of a choice, and the lower and upper third of each range, with what tells whether it holds."""
    for name, parameter in space.parameters.items():
        if isinstance(parameter, Choice):
            for choice in parameter.choices:
                yield f"{name}={text.number(choice)}", _equals(name, choice)
            continue
        for low, high in ((0.0, 1 / 3), (2 / 3, 1.0)):
            side = (
                ("<=", parameter.from_unit(1 / 3))
                if low == 0.0
                else (">=", parameter.from_unit(2 / 3))
            )
            yield f"{name} {side[0]} {text.number(side[1])}", _within(name, space, low, high)


def _equals(name: str, value: Any) -> Any:
    def holds(params: Mapping[str, Any]) -> bool:
        return bool(params.get(name) == value)

    return holds


def _within(name: str, space: Space, low: float, high: float) -> Any:
    def holds(params: Mapping[str, Any]) -> bool:
        parameter = space.parameters[name]
        return (
            name in params
            and parameter.legal(params[name])
            and low <= parameter.to_unit(params[name]) <= high
        )

    return holds
