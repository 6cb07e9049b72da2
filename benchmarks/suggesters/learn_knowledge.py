"""Learns `automl/suggesters/knowledge.json` from the trainings to develop on.

    python benchmarks/suggesters/learn_knowledge.py

Of a sweep of TPE on each of the 60 problems, the best tenth counts as good. A role of a parameter
(`automl.suggesters.knowledge.ROLES`) that three problems of a kind of model have gets a normal
density, or weights of options. Sealed problems are never looked at.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.suggesters import held_out  # first: it sets the number of threads

import numpy as np  # isort: skip

from automl.suggesters.base import EarlierSweep
from automl.suggesters.knowledge import FILE, kind_of, logarithmic, role_of
from benchmarks.common.options import parser
from benchmarks.suggesters.earlier_sweeps import earlier_sweep
from benchmarks.suggesters.held_out import Judged
from benchmarks.suggesters.suggesters import one_thread
from search_spaces import Choice, Space
from search_spaces.parameters import Parameter

GOOD: Final = 4  # trials of each sweep that count
MIN_PROBLEMS: Final = 3
RIDGE: Final = 2.0  # observations that speak against a shift
SHIFTED: Final = "learning_rate"


def learn(problems: Sequence[tuple[Space, EarlierSweep]]) -> dict[str, Any]:
    """By kind of model and role, where the good values lie.

    Args:
        problems: each with a sweep on it.
    """
    good = [(space, _good(sweep)) for space, sweep in problems]
    values: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    options: dict[tuple[str, str], list[Counter[str]]] = defaultdict(list)
    for space, trials in good:
        kind = kind_of(space)
        for name, parameter in space.parameters.items():
            here = [params[name] for params in trials if name in params]
            role = role_of(name)
            if not role or not here:
                continue
            if isinstance(parameter, Choice):
                options[kind, role].append(Counter(str(one).lower() for one in here))
            else:
                scale = "log" if logarithmic(parameter) else "linear"
                values[kind, f"{role} {scale}"].append([_number(parameter, v) for v in here])
    found: dict[str, Any] = defaultdict(dict)
    for (kind, key), each in sorted(values.items(), key=lambda item: len(item[1])):
        role, _, scale = key.partition(" ")  # of two scales, that of more problems
        if len(each) >= MIN_PROBLEMS:
            spread = float(np.sqrt(np.var([np.mean(v) for v in each], ddof=1) + _within(each)))
            at = float(np.mean([np.mean(v) for v in each]))
            found[kind][role] = {"at": round(at, 3), "spread": round(spread, 3)}
            found[kind][role]["log"] = scale == "log"
    for (kind, role), counts in options.items():
        if len(counts) >= MIN_PROBLEMS:
            total = sum(
                (Counter({k: v / c.total() for k, v in c.items()}) for c in counts), Counter()
            )
            found[kind][role] = {"weights": {k: round(1 + v, 2) for k, v in sorted(total.items())}}
    for kind, roles in found.items():
        if SHIFTED in roles and (shifts := _shifts([g for g in good if kind_of(g[0]) == kind])):
            roles[SHIFTED]["shifts"] = shifts
    return {kind: dict(sorted(roles.items())) for kind, roles in sorted(found.items()) if roles}


def _good(sweep: EarlierSweep) -> list[Any]:
    order = np.argsort(sweep.losses["loss"], kind="stable")
    return [sweep.params[i] for i in order[:GOOD]]


def _number(parameter: Parameter, value: Any) -> float:
    return float(np.log10(value) if logarithmic(parameter) else value)


def _within(each: Sequence[Sequence[float]]) -> float:
    return float(np.mean([np.var(values) for values in each]))


def _shifts(good: Sequence[tuple[Space, list[Any]]]) -> dict[str, Any]:
    """How the rate of good trials follows their batch and optimizer, within each problem."""
    rows = []
    for space, trials in good:
        by_role = {role_of(name): name for name in space.parameters}
        rate, batch, optimizer = (by_role.get(r) for r in (SHIFTED, "batch_size", "optimizer"))
        if not (rate and batch and optimizer):
            continue
        for p in trials:
            is_sgd = float(str(p[optimizer]).lower() == "sgd")
            rows.append((np.log10(p[rate]), np.log10(p[batch]), is_sgd))
    if len(rows) < MIN_PROBLEMS * GOOD:
        return {}
    table = np.array(rows)
    x = table[:, 1:] - table[:, 1:].mean(0)
    slopes = np.linalg.solve(x.T @ x + RIDGE * np.eye(2), x.T @ (table[:, 0] - table[:, 0].mean()))
    slope, sgd, part = round(float(slopes[0]), 3), float(slopes[1]), float(table[:, 2].mean())
    return {
        "batch_size": {"slope": slope, "origin": round(float(table[:, 1].mean()), 3)},
        "optimizer": {
            "sgd": round(sgd * (1 - part), 3),
            **dict.fromkeys(("adam", "adamw", "rmsprop"), round(-sgd * part, 3)),
        },
    }


def source(problem: Judged) -> tuple[Space, EarlierSweep]:
    """A problem's space, and a sweep on it."""
    return problem.space, earlier_sweep(problem)


def main() -> None:
    """Learn, write and show."""
    parser(__doc__).parse_args()
    one_thread()
    found = learn([source(problem) for problem in held_out.problems("develop")])
    FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(FILE.read_text())


if __name__ == "__main__":
    main()
