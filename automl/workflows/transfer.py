"""Warm start from an earlier sweep of something alike: other data, other hardware, a larger model.

Its metrics cannot be compared with those to come, so its trials are not taken over (`--prior sweep:NAME` does that,
for the same problem). What is taken is where its best configurations lay: beliefs about each parameter, and the best
of them as trials to begin with (Feurer et al., "Initializing Bayesian hyperparameter optimization via meta-learning",
2015; Souza et al., "Bayesian optimization with a prior for the optimum", 2021).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from automl.core.events import Noted, Proposed
from automl.core.ranking import value
from automl.core.snapshot import Snapshot
from automl.core.spec import SweepSpec
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.suggesters import SUGGESTERS
from automl.suggesters.user_prior import check_prior, prior_from_best
from search_spaces import Space
from workers.protocol import Params

SHARE: Final = 0.15  # of the trials that succeeded: these are the good ones
LEAST, TRIED = 3, 3  # good ones at least; how many are trained again
SOURCE: Final = "transferred"


def transfer(ledger: Ledger, sweep: str, earlier: str) -> SweepSpec:
    """Let a sweep that has not run begin with what an earlier one of the same store has learned.

    Beliefs that the sweep has already stay as they are. Trial 0 is the default configuration as ever.

    Returns:
        The sweep's new spec.

    Raises:
        UsageError: the earlier sweep is not there, or has nothing to tell about this space.
    """
    spec = ledger.spec(sweep)
    good = best_of(ledger.snapshot(earlier), spec.space)
    if not good:
        raise UsageError(
            f"sweep {earlier!r} has no successful trial with a parameter that is tuned here"
        )
    uses_prior = SUGGESTERS.get(spec.suggester).uses_context
    beliefs = prior_from_best(spec.space, good) if uses_prior else {}
    spec = replace(
        spec, beliefs=check_prior({**beliefs, **spec.beliefs}, spec.space, spec.suggester)
    )
    ledger.replace_spec(sweep, spec)
    default = spec.space.default()
    chosen = distinct(spec.space, good, [default] if default else [])[:TRIED]
    if spec.budget.trials is not None:
        chosen = chosen[: max(0, spec.budget.trials - 1)]
    recorder = ledger.acquire(sweep)
    try:
        told = f"{len(beliefs)} beliefs and {len(chosen)} configurations of the {len(good)} best trials of {earlier}"
        recorder.apply(Noted("transfer", told))
        for source, params in [("default", p) for p in [default] if p] + [
            (SOURCE, p) for p in chosen
        ]:
            recorder.apply(Proposed(len(recorder.trials), dict(params), source))
        recorder.commit(state="interrupted")
    finally:
        ledger.release(sweep)
    return spec


def best_of(snapshot: Snapshot, space: Space) -> list[Params]:
    """The parameters of the best trials that this space knows too, the best first."""
    goal, rules = snapshot.goals[0], snapshot.constraints
    worth = [
        (value(t, goal, rules, last_report_counts=snapshot.last_report_counts), t)
        for t in snapshot.trials
    ]
    scored = [(found, trial) for found, trial in worth if found is not None]
    scored.sort(key=lambda item: (goal.loss(item[0]), item[1].number))
    kept = max(LEAST, round(SHARE * len(scored)))
    known = [
        {
            name: v
            for name, v in trial.params.items()
            if name in space.parameters and space.parameters[name].legal(v)
        }
        for _, trial in scored[:kept]
    ]
    return [params for params in known if params]


def distinct(space: Space, good: list[Params], others: list[Params]) -> list[Params]:
    """Legal configurations of these parameters, what they do not say at its default; none twice or among `others`."""
    seen = {space.key(params) for params in others}
    found: list[Params] = []
    for params in good:
        whole = space.complete(params)
        if space.legal(whole) and (key := space.key(whole)) not in seen:
            seen.add(key)
            found.append(whole)
    return found
