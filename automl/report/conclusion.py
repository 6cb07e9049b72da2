"""How certain the result of a sweep is, and the warnings of its report."""

from collections.abc import Iterator, Sequence

import numpy as np

from automl.core import Trial, text

from .caveats import caveats
from .effects import Insight
from .metric_models import MetricModel, fit_goal
from .record import Record


def certainty(record: Record, insights: Sequence[Insight]) -> str:
    """The expected result of another run of the best configuration, and the source of that."""
    best = record.snapshot.best
    insight = _of_goal(record, insights)
    if record.confirmation is not None:
        return str(record.confirmation)
    if best is None or insight is None:
        return ""
    if insight.doubt:
        return (
            f"The result of another run of trial {best.number} cannot be predicted. "
            f"To train it again: automl confirm {record.snapshot.sweep}"
        )
    low, middle, high = (text.number(value) for value in predicted(record, insight.model, best))
    found = (
        f"The model of all trials predicts {middle} for another run of trial {best.number}; "
        f"with 90% probability it is between {low} and {high}."
    )
    other = expected_best(record, insight.model)
    if other is None or other.number == best.number:
        return found
    middle = text.number(predicted(record, insight.model, other)[1])
    return f"{found} It expects more of trial {other.number}: {middle}."


def expected_best(record: Record, model: MetricModel | None = None) -> Trial | None:
    """The trial whose expected result in another run is the best.

    A trial that was selected for its score had luck as well; the mean of a Gaussian process at the
    tried configurations weighs all of them (Frazier, "A tutorial on Bayesian optimization", 2018,
    section 4.1).

    Args:
        model: of the first goal's metric; fitted if None.

    Returns:
        None if there is no model, or the fitted one is not believable.
    """
    if model is None:
        from automl.suggesters.bayes.model.calibration import calibrate

        model = fit_goal(record)
        if model is None or not calibrate(model.metric, model.ensemble).believable:
            return None
    scored = {trial.number for trial, _ in record.scored()}
    means = model.ensemble.mean(model.ensemble.features).tolist()
    known = [
        (mean, trial.number, trial)
        for mean, trial in zip(means, model.trials, strict=True)
        if trial.number in scored
    ]
    return min(known, key=lambda item: item[:2])[2] if known else None


def predicted(record: Record, model: MetricModel, trial: Trial) -> tuple[float, float, float]:
    """The 5%, 50% and 95% quantiles of the metric in another run of a trial, with its noise."""
    worst = float(model.ensemble.y.max())  # the transform is not valid beyond it
    draws = model.another_run(record.space.encode([trial.params]), 200, 0, worst)
    low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95])
    if min(model.observed) >= 0:  # an error or a time is never negative
        low, middle = max(low, 0.0), max(middle, 0.0)
    return float(low), float(middle), float(high)


def warnings(record: Record, insights: Sequence[Insight]) -> Iterator[str]:
    """Every reason to doubt the result."""
    yield from caveats(record.snapshot, record.space)
    yield from _noise(record, insights)
    if record.confirmation is not None and not record.confirmation.exceeds_noise:
        yield f"repeated trainings show no clear difference: {record.confirmation}"
    for insight in insights:
        if insight.doubt:
            yield f"{insight.doubt}: which parameters matter for it is not known"
    fallbacks = [note for note in record.notes if note.kind == "fallback"]
    if fallbacks:
        times = "once" if len(fallbacks) == 1 else f"{len(fallbacks)} times"
        yield f"a fallback replaced the suggester {times}: {fallbacks[-1].message}"


def _noise(record: Record, insights: Sequence[Insight]) -> Iterator[str]:
    """Whether the best leads the second best by less than the noise of repeated runs."""
    insight, scored = _of_goal(record, insights), record.scored()
    if insight is None or len(scored) < 2 or record.confirmation is not None:
        return
    model = insight.model
    (best, value), (second, other) = scored[:2]
    noise = float(model.ensemble.hyper.noise.sqrt().median())
    losses = [model.sign * (np.log(v) if model.log else v) for v in (value, other)]
    lead = float(np.diff(model.transform(np.array(losses)))[0])
    if lead < 2 * noise:
        yield (
            f"trial {best.number} leads trial {second.number} by {text.number(abs(value - other))},"
            " which is within run-to-run noise; "
            f"to train the best again: automl confirm {record.snapshot.sweep}"
        )


def _of_goal(record: Record, insights: Sequence[Insight]) -> Insight | None:
    return next((one for one in insights if one.model.metric == record.goal.metric), None)
