"""How certain the result of a sweep is, and the warnings of its report."""

from collections.abc import Iterator, Sequence

import numpy as np

from automl.core import Trial, text
from automl.suggesters.proposer import FALLBACK

from .caveats import caveats
from .effects import Insight
from .recommendation import advised, expected_best
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
        f"The model of all trials predicts {middle} for another run of trial {best.number}; "
        f"with 90% probability it is between {low} and {high}."
    )
    other = expected_best(record, insight.model)
    if other.number == best.number:
        return found
    return f"{found} It expects more of trial {other.number}: {run_of(other)[1]}."


def recommendation(record: Record, insights: Sequence[Insight]) -> str:
    """The recommendation in a sentence or two, if runs differ; else ""."""
    insight = _of_goal(record, insights)
    if record.snapshot.best is None or insight is None or insight.doubt:
        return ""
    return " ".join(line.strip() for line in advised(record, insight.model).lines(record.snapshot))


def warnings(record: Record, insights: Sequence[Insight]) -> Iterator[str]:
    """Every reason to doubt the result."""
    yield from caveats(record.snapshot, record.space)
    yield from _noise(record, insights)
    if record.confirmation is not None and not record.confirmation.exceeds_noise:
        yield f"repeated trainings show no clear difference: {record.confirmation}"
    used = {goal.metric for goal in record.spec.goals}
    used |= {constraint.metric for constraint in record.spec.constraints}
    for insight in insights:
        if insight.doubt and insight.model.metric in used:
            yield f"{insight.doubt}: which parameters matter for it is not known"
    fallbacks = [note for note in record.notes if note.kind == "fallback"]
    if fallbacks:
        count = sum(trial.source == FALLBACK for trial in record.trials)
        yield f"a fallback proposed {count} of the trials: {fallbacks[-1].message}"


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
