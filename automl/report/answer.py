"""The answer of a sweep in a sentence, how sure it is, and what makes it doubtful."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from automl.core import text
from automl.core.trial import Trial

from . import summary
from .caveats import caveats
from .effects import Insight
from .learned import Learned
from .record import Record


def sentence(record: Record) -> str:
    """The answer as the terminal gives it."""
    return summary.answer(record.snapshot)


def certainty(record: Record, insights: Sequence[Insight]) -> str:
    """What another run of the best configuration would probably reach, and where that is known from."""
    best = record.snapshot.best
    learned = _of_goal(record, insights)
    if record.confirmation is not None:
        return str(record.confirmation)
    if best is None or learned is None:
        return ""
    from automl.suggesters.bayes.model.calibration import calibrate

    if not calibrate(learned.metric, learned.model).reliable:
        confirm = f"automl confirm {record.snapshot.sweep}"
        return f"What another run of trial {best.number} would reach is not known: {confirm} trains the best again."
    low, middle, high = expected(record, learned, best)
    return (
        f"Going by the surrogate of all trials, another run of trial {best.number} would reach {text.number(middle)}, "
        f"with 90% probability between {text.number(low)} and {text.number(high)}."
    )


def expected(record: Record, learned: Learned, trial: Trial) -> tuple[float, float, float]:
    """5%, 50% and 95% of what another run of the trial's configuration is predicted to reach, noise included."""
    mean, variance = learned.model.predict(learned.encoder(record.space.encode([trial.params])))
    deviation = (variance[:, 0] + learned.model.hyper.noise).sqrt().numpy()
    noise = np.random.default_rng(0).standard_normal((200, len(deviation)))
    worst = float(learned.model.y.max())  # beyond it the transformed scale is not to be trusted
    draws = np.minimum(mean[:, 0].numpy() + deviation * noise, worst).reshape(-1)
    low, middle, high = np.quantile(learned.values(draws), [0.05, 0.5, 0.95])
    if (
        min(learned.values(learned.model.y.numpy().reshape(-1))) >= 0
    ):  # an error or a time is never negative
        low, middle = max(low, 0.0), max(middle, 0.0)
    return float(low), float(middle), float(high)


def doubts(record: Record, insights: Sequence[Insight]) -> Iterator[str]:
    """Every warning."""
    yield from caveats(record.snapshot, record.space)
    yield from _noise(record, insights)
    if record.confirmation is not None and not record.confirmation.exceeds_noise:
        yield f"training the best again did not tell them apart: {record.confirmation}"
    for insight in insights:
        from automl.suggesters.bayes.model.calibration import calibrate

        found = calibrate(insight.learned.metric, insight.learned.model)
        if not found.reliable:
            yield f"the surrogate of {found.metric} predicts poorly: what is shown of its parameters may be wrong"
    fallbacks = [note for note in record.notes if note.kind == "fallback"]
    if fallbacks:
        times = "once" if len(fallbacks) == 1 else f"{len(fallbacks)} times"
        yield f"another suggester stepped in {times}: {fallbacks[-1].message}"


def _noise(record: Record, insights: Sequence[Insight]) -> Iterator[str]:
    """Whether the lead of the best over the next is within what one configuration varies by itself."""
    learned, scored = _of_goal(record, insights), record.scored()
    if learned is None or len(scored) < 2 or record.confirmation is not None:
        return
    (best, value), (second, other) = scored[:2]
    noise = float(learned.model.hyper.noise.sqrt().median())
    losses = [learned.sign * (np.log(v) if learned.log else v) for v in (value, other)]
    lead = float(np.diff(learned.transform(np.array(losses)))[0])
    if lead < 2 * noise:
        yield (
            f"trial {best.number} leads trial {second.number} by {text.number(abs(value - other))}, which is less than "
            f"runs of one configuration seem to differ: automl confirm {record.snapshot.sweep} trains the best again"
        )


def _of_goal(record: Record, insights: Sequence[Insight]) -> Learned | None:
    return next((i.learned for i in insights if i.learned.metric == record.goal.metric), None)
