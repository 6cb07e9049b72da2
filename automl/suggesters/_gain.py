"""What another trial is worth: the expected gain of the best configuration that is known to try."""

from __future__ import annotations

import math
from collections.abc import Sequence

from automl.trial import Trial
from workers.protocol import Params

from .base import Suggester

LEAST_TRIALS = 10  # before which a surrogate is not trusted to say that little is left to gain


def expected_gain(suggester: Suggester, history: Sequence[Trial], params: Params) -> float | None:
    """The expected improvement of the goal by a trial, in the goal's unit, times the probability that it succeeds.

    Near the best configuration the surrogate's scale is linear in the goal, so that its expected improvement is one of
    the goal.

    Returns:
        None where the suggester has no surrogate to tell it, for several goals, and before enough trials have ended.
    """
    from .bayes import BayesSuggester
    from .bayes.data import collect
    from .bayes.suggester import one_thread

    if not isinstance(suggester, BayesSuggester) or len(suggester.goals) > 1:
        return None
    with one_thread():
        data = collect(suggester.space, history, suggester.goals, [c.metric for c in suggester.constraints])
        if len(data) < LEAST_TRIALS or not suggester.surrogates_.possible(data):
            return None
        beliefs = suggester.surrogates_.fit(data)
        transform = beliefs.goals[0].transform
        if transform is None or not beliefs.holds.any():
            return None
        gain = math.exp(float(beliefs.score(suggester.space.encode([params]))[0]))
    return gain * transform.scale * transform.spread
