"""Warm start from an earlier sweep of a similar problem: other data, hardware or model size.

The metrics of the two sweeps cannot be compared, so no trial is imported (`--prior sweep:NAME` does
that, for the same problem). Two things are transferred: a prior over each parameter, and the best
configurations as first trials (Feurer et al., "Initializing Bayesian hyperparameter optimization
via meta-learning", 2015; Souza et al., "Bayesian optimization with a prior for the optimum", 2021).
"""

from dataclasses import replace
from typing import Final

from automl.control.writer import writing
from automl.core import Snapshot, SweepSpec, text
from automl.core.plugin_choice import PluginChoice, choose
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import Suggester
from automl.suggesters.user_prior import check_prior, prior_from_best
from search_spaces import Space
from workers.protocol import Params

SHARE: Final = 0.15  # part of the successful trials that counts as good
MIN_GOOD: Final = 3  # at least this many trials count as good
MAX_TRIED: Final = 3  # at most this many good configurations are trained again
SOURCE: Final = "transferred"


def transfer(
    ledger: Ledger, sweep: str, earlier: str, suggester: PluginChoice[Suggester] | None = None
) -> SweepSpec:
    """Start a sweep that has not run from an earlier one of the same store.

    Priors that the sweep has already stay. Trial 0 is the default configuration, as usual.

    Args:
        suggester: of the sweep; None for the one that the spec names.

    Returns:
        The sweep's new spec.

    Raises:
        UsageError: there is no earlier sweep, or none of its good trials has a tuned parameter.
    """
    spec = ledger.spec(sweep)
    good = best_of(ledger.snapshot(earlier), spec.space)
    if not good:
        raise UsageError(
            f"sweep {earlier!r} has no successful trial with a parameter that is tuned here"
        )
    proposer = suggester or choose(SUGGESTERS, spec.suggester)
    uses_prior = proposer.kind(SUGGESTERS).uses_context
    beliefs = prior_from_best(spec.space, good) if uses_prior else {}
    beliefs = {**beliefs, **spec.beliefs}
    spec = replace(spec, beliefs=check_prior(beliefs, spec.space, proposer))
    default = spec.space.default()
    chosen = distinct(spec.space, good, [default] if default else [])[:MAX_TRIED]
    if spec.budget.trials is not None:
        chosen = chosen[: max(0, spec.budget.trials - 1)]
    with writing(ledger, sweep) as writer:
        writer.specify(spec)
        note = (
            f"{len(beliefs)} beliefs and {len(chosen)} configurations "
            f"of the {len(good)} best trials of {earlier}"
        )
        writer.note("transfer", note)
        if default:
            writer.propose(default, "default")
        for params in chosen:
            writer.propose(params, SOURCE)
    return spec


def best_of(snapshot: Snapshot, space: Space) -> list[Params]:
    """Parameters of the best trials, the best first, without values that the space excludes."""
    worth = [(text.goal_value(trial, snapshot), trial) for trial in snapshot.trials]
    scored = [(found, trial) for found, trial in worth if found is not None]
    scored.sort(key=lambda item: (snapshot.goals[0].loss(item[0]), item[1].number))
    kept = max(MIN_GOOD, round(SHARE * len(scored)))
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
    """Complete `good` with defaults; keep the legal ones that are neither twice nor in `others`."""
    seen = {space.key(params) for params in others}
    found: list[Params] = []
    for params in good:
        whole = space.complete(params)
        if space.legal(whole) and (key := space.key(whole)) not in seen:
            seen.add(key)
            found.append(whole)
    return found
