"""Why a trial was suggested: its acquisition when it was proposed, beside the best alternative."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from automl.control.plugins import Plugins
from automl.core import Command, Proposed, SweepSpec, Trial
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.suggesters.bayes.suggester import BayesSuggester, Explanation
from automl.suggesters.domain import Domain, updated_limits

OTHERS: Final = {
    "default": "It is the default configuration, which every sweep trains first.",
    "enqueued": "A person gave this configuration.",
    "retried": "A person had a configuration tried again.",
    "design": "It belongs to the initial design, which covers the space before there is a model.",
}
REPEATED: Final = "It runs the configuration of trial {} again, with another seed."
SEVERAL: Final = 1.05  # times the value, from which one is said to be better


def reason(ledger: Ledger, sweep: str, number: int) -> dict[str, Any]:
    """Why a trial was suggested, by what was known then.

    Returns:
        `words`, and if there was an acquisition: `num_known` and `num_pending` trials, `terms` of
        the trial as logarithms, `other` (the best alternative or None) and `other_terms`.

    Raises:
        UsageError: there is no such trial.
    """
    trials, spec = ledger.trials(sweep), ledger.spec(sweep)
    if number >= len(trials):
        raise UsageError(f"sweep {sweep} has no trial {number}")
    trial = trials[number]
    if trial.replicate_of is not None and trial.source not in OTHERS:
        return {"words": REPEATED.format(trial.replicate_of)}
    if trial.source != BayesSuggester.name:
        words = OTHERS.get(trial.source, f"{trial.source} proposed it, which has no acquisition.")
        return {"words": words}
    at = _proposed_at(ledger, sweep, trial)
    earlier = trials[:number]
    known = [one for one in earlier if one.ended is not None and one.ended <= at]
    pending = [one for one in earlier if one.ended is None or one.ended > at]
    suggester = _suggester(ledger, sweep, spec, at)
    found = suggester.explain(known, pending, trial.params)
    if found is None:
        return {"words": OTHERS["design"]}
    return {
        "words": _in_words(found),
        "num_known": len(known),
        "num_pending": len(pending),
        "terms": _shown(found.terms),
        "other": None if found.other is None else dict(found.other),
        "other_terms": _shown(found.other_terms),
    }


def _proposed_at(ledger: Ledger, sweep: str, trial: Trial) -> float:
    """When a trial was proposed, in seconds of the sweep."""
    events = (event for _, event in ledger.trial_events(sweep, trial.number))
    return next((one.at for one in events if isinstance(one, Proposed)), trial.started or 0.0)


def _suggester(ledger: Ledger, sweep: str, spec: SweepSpec, at: float) -> BayesSuggester:
    """The suggester of the sweep within the limits that held then."""
    commands: list[Command] = ledger.commands(sweep)
    sent = [one.content for one in commands if one.kind == "limits" and one.at <= at]
    domain = Domain.of(spec).within(updated_limits(sent))
    made = Plugins.of(spec).make_suggester(spec, BayesSuggester.name, domain)
    assert isinstance(made, BayesSuggester), "it takes the domain itself"
    return made


def _shown(terms: Mapping[str, float]) -> dict[str, float]:
    """The terms that say something: a term that is zero has no part in the value."""
    return {name: value for name, value in terms.items() if value or name == "improvement"}


def _in_words(found: Explanation) -> str:
    if found.other is None:
        return "There was no other configuration left to try."
    total, other = sum(found.terms.values()), sum(found.other_terms.values())
    times = math.exp(min(abs(total - other), 50.0))
    names = found.terms.keys() | found.other_terms.keys()
    ahead = {n: found.terms.get(n, 0.0) - found.other_terms.get(n, 0.0) for n in names}
    if times < SEVERAL:
        return "It was worth as much as the best alternative that the search finds."
    if total > other:
        best = max(sorted(ahead), key=lambda name: ahead[name])
        return (
            f"It was worth {_times(times)} the best alternative that the search finds, "
            f"most of all by its {best}."
        )
    return (
        f"The best alternative was worth {_times(times)} this trial. It was suggested before the "
        "latest results were known, or by a rule beside the acquisition, such as another "
        "try of an option that has only failed."
    )


def _times(factor: float) -> str:
    return "more than 1,000 times" if factor > 1000 else f"{factor:.3g} times"
