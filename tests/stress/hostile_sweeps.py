"""Legal sweeps that are hard to show: extreme numbers, hostile names, few or very many trials."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np

from automl.core import Budget, Constraint, Goal, ReportPoint, Snapshot, SweepSpec, Trial
from automl.core.arguments import compact_json
from automl.core.events import Moved
from automl.core.snapshot import Standings
from automl.core.trial import TrialState
from automl.errors import UsageError
from automl.report.console import console
from automl.report.page import card, render
from automl.report.record import Record
from automl.report.summary import print_summary
from automl.report.sweep_data import web_pages
from automl.report.terminal_view import PlainLines, SweepView, state_lines
from search_spaces import Choice, Float, Int, Space

NUMBERS = (
    0.0, -0.0, 1.0, -1.0, 5e15, 5e15 + 1, -5e15, 1e308, -1e308, 1.7976931348623157e308,
    5e-324, 2.2e-308, 1e35, -1e35, 1e-300, 1 / 3, 1e16, 123456789.123,
)  # fmt: skip
NAMES = (
    "x", "lr", "model.lr", "\ud800", "a\udfffb", "\x1b[2J\x1b]0;owned\x07", "<b>&\"'", "</script>",
    "\u202egnp", "a\nb", "é" * 40, "%{x}", "$y$", "$css", "𝕏", "\x9b31m", "_", "x" * 60,
)  # fmt: skip
COUNTS = (0, 1, 1, 2, 3, 5, 7, 9, 12, 20, 30)
FAILURES = ("out_of_memory", "non_finite", "timeout", "crashed", "preempted", "missing_metric")
HOSTILE = ("\x1b", "\x07", "\x9b", "\u202e", "\ud800", "\udfff")


def record(seed: int, count: int | None = None) -> Record:
    """A sweep that follows from the seed.

    Args:
        count: number of trials; None to draw it.
    """
    rng = random.Random(seed)
    names = rng.sample(NAMES, 8)
    space = _space(rng, names[:4])
    goals = tuple(
        Goal(name, maximize=rng.random() < 0.5) for name in names[4 : rng.choice((5, 5, 6, 7))]
    )
    constraints = (Constraint(names[7], 1.0),) if rng.random() < 0.2 else ()
    scale = rng.choice(("any", "constant", "nearly", "ordinary", "ordinary", "diverged"))
    size = rng.choice(COUNTS) if count is None else count
    params = space.sample(np.random.default_rng(seed), max(size, 1))[:size]
    fails = rng.choice((0.0, 0.0, 0.3, 1.0))
    trials = [
        _trial(rng, number, dict(one), goals, scale, fails) for number, one in enumerate(params)
    ]
    budget = Budget(trials=rng.choice((None, 1, 10**9)), time=rng.choice((None, 1e-9, 1e308)))
    spec = SweepSpec("toy", space, goals, constraints, budget=budget, seed=seed)
    state = rng.choice(("running", "finished", "interrupted", "failed"))
    snapshot = Snapshot(
        "toy", state, trials, goals, constraints, budget, rng.choice((0.0, 1e-9, 100.0, 1e15)),
        num_slots=rng.choice((0, 2)), suggestion_seconds=[0.1], spec=spec,
        dashboard=rng.choice(("", "http://127.0.0.1:8265", "javascript:alert(1)", "\x1b[2J")),
    )  # fmt: skip
    return Record.of(snapshot)


def _space(rng: random.Random, names: list[str]) -> Space:
    bounds = sorted(rng.sample([n for n in NUMBERS if n > 0], 2))
    kinds: list[Any] = [
        lambda name: Float(name, 0.0, 1.0, default=0.5),
        lambda name: Float(name, *bounds, log=rng.random() < 0.5),
        lambda name: Float(name, -1e308, rng.choice((0.0, 7e307))),
        lambda name: Int(name, 1, rng.choice((1, 9, 2**53))),
        lambda name: Choice(name, list(rng.sample(NAMES, 3))),
        lambda name: Choice(name, [1, 2.5, True, "a"]),
    ]
    found: list[Any] = []
    for name in names[: rng.choice((1, 2, 4))]:
        try:
            found.append(rng.choice(kinds)(name))
        except UsageError:  # a name or a range that a space refuses
            found.append(Float(f"p{len(found)}", 0.0, 1.0))
    parent = next((p for p in found if isinstance(p, Choice)), None)
    if parent is not None and found[-1] is not parent:
        found[-1] = Float(found[-1].name, 0.0, 1.0, when={parent.name: parent.choices[:1]})
    try:
        return Space(*found)
    except UsageError:
        return Space(Float("p", 0.0, 1.0))


def _value(rng: random.Random, scale: str) -> float:
    if scale == "any":
        return rng.choice(NUMBERS)
    if scale == "constant":
        return 5e15
    if scale == "nearly":
        return 5e15 + rng.choice((0.0, 1.0, 2.0))
    if scale == "diverged":
        return rng.choice((rng.random(), rng.random(), 10.0 ** rng.uniform(0, 308)))
    return rng.random()


def _trial(
    rng: random.Random, number: int, params: dict[str, Any], goals: Any, scale: str, fails: float
) -> Trial:
    state = TrialState.FAILED if rng.random() < fails else rng.choice(list(TrialState))
    metrics = {goal.metric: _value(rng, scale) for goal in goals if rng.random() < 0.95}
    metrics["peak_memory_bytes"] = abs(_value(rng, scale))
    metrics[rng.choice(NAMES)] = rng.choice(NUMBERS)
    failed = state is TrialState.FAILED
    started = rng.choice((0.0, 1e-9, float(number), 1e15))
    reports = [
        ReportPoint(step, {goal.metric: _value(rng, scale) for goal in goals}, float(step), 1, i)
        for i, step in enumerate(sorted(rng.sample(range(-5, 10**6), rng.choice((0, 1, 5, 80)))))
    ]
    return Trial(
        number, params, state, {} if failed else metrics,
        rng.choice(FAILURES) if failed else None, rng.choice(NAMES) if failed else "", 1,
        rng.choice((0.0, 1e-4, 3.0, 1e15)), rng.choice((None, 0, 10**6, 2**62)), tuple(reports),
        "default" if number == 0 else "bayes", started,
        started + rng.choice((0.0, 1.0, 1e15)) if state.finished else None,
    )  # fmt: skip


def shown(found: Record) -> dict[str, str]:
    """All that people see of a sweep, by its place."""
    counts = Standings.of(found.snapshot).counts()
    lines = state_lines(found.snapshot, counts)
    live = {"lines": lines, "links": web_pages(found.snapshot.dashboard)}
    return {
        "terminal": terminal_text(found),
        "page": render(found),
        "card": card(found.snapshot),
        "live": compact_json(live),
    }


def terminal_text(found: Record) -> str:
    """What a terminal shows: both kinds of live view, and the summary."""
    out = console(width=100)
    with out.capture() as terminal:
        out.print(SweepView(found.snapshot, 30))
        events = [Moved(trial.number, trial.state) for trial in found.trials]
        PlainLines(out)(replace(found.snapshot, events=events))
        print_summary(out, found.snapshot, found.space)
    return terminal.get()


def wrong(found: Record) -> list[str]:
    """Everything about the shown sweep that must not be."""
    places = shown(found)
    problems = [
        f"{character!r} in {place}"
        for place, text in places.items()
        for character in HOSTILE
        if character in (text.split("<script>")[0] if place == "page" else text)
    ]
    places["page"].encode("utf-8")
    return problems
