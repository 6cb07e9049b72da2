"""How certain the result of a sweep is, and the warnings of its report."""

from collections.abc import Iterator, Sequence

import numpy as np

from automl.core import Trial, text
from automl.suggesters import SUGGESTERS

from .caveats import caveats
from .effects import Insight
from .recommendation import Recommendation, expected_best, recommended
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

    def run_of(trial: Trial) -> list[str]:
        quantiles = insight.model.another_run(record.space.encode([trial.params]))
        return [text.number(value) for value in quantiles]

    low, middle, high = run_of(best)
    found = (
        f"The model of all whole trials predicts {middle} for another run of trial {best.number}; "
        f"with 90% probability it is between {low} and {high}."
    )
    other = expected_best(record, insight.model)
    if other.number == best.number:
        return found
    return f"{found} It expects more of trial {other.number}: {run_of(other)[1]}."


def advice(record: Record, insights: Sequence[Insight]) -> Recommendation | None:
    """What is recommended, by the model that the report already has of the first goal."""
    insight = _of_goal(record, insights)
    model = None if insight is None or insight.doubt else insight.model
    return recommended(record, lambda _: model)


def recommendation(record: Record, insights: Sequence[Insight]) -> str:
    """The recommendation in a sentence or two, if runs differ; else ""."""
    found = advice(record, insights)
    return "; ".join(line.strip() for line in found.lines(record.snapshot)) if found else ""


def warnings(record: Record, insights: Sequence[Insight]) -> Iterator[str]:
    """Every reason to doubt the result."""
    yield from caveats(record.snapshot, record.space)
    yield from _noise(record, insights)
    again = record.confirmation
    if again is not None and not again.exceeds_noise:
        found = "refute the choice of the sweep" if again.refutes else "show no clear difference"
        yield f"repeated trainings {found}: {again}"
    used = {goal.metric for goal in record.spec.goals}
    used |= {constraint.metric for constraint in record.spec.constraints}
    for insight in insights:
        if insight.doubt and insight.model.metric in used:
            yield f"{insight.doubt}: which parameters matter for it is not known"
    fallbacks = [note for note in record.notes if note.kind == "fallback"]
    if fallbacks:
        others = {*SUGGESTERS.names()} - {record.spec.suggester}  # the fallback was another once
        count = sum(trial.source in others for trial in record.trials)
        yield f"a fallback proposed {count} of the trials: {fallbacks[-1].message}"


def _noise(record: Record, insights: Sequence[Insight]) -> Iterator[str]:
    """Whether the best leads the second best by less than the noise of repeated runs."""
    insight, scored = _of_goal(record, insights), record.scored()
    if insight is None or len(scored) < 2 or record.confirmation is not None:
        return
    model = insight.model
    (best, value), (second, other) = scored[:2]
    noise = float(model.ensemble.kernel.noise.detach().sqrt().median())
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
