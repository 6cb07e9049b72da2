"""Snapshots of a small sweep, for the tests of the terminal's output."""

from dataclasses import replace

from automl.core import Budget, Ended, Goal, ReportPoint, Snapshot, SweepSpec, Trial, TrialState
from search_spaces import Choice, Float, Space
from workers.protocol import Ending, Outcome

SPACE = Space(
    Float("learning_rate", 1e-5, 1e-1, log=True, default=1e-3),
    Choice("precision", ["fp32", "bf16"], default="fp32"),
)
BLEU = Goal("bleu", maximize=True)


def trial(
    number: int, bleu: float | None, state: TrialState = TrialState.COMPLETED, **facts: object
) -> Trial:
    params = {"learning_rate": 1e-3 * (number + 1), "precision": "bf16" if number else "fp32"}
    metrics = {} if bleu is None else {"bleu": bleu, "peak_memory_bytes": 9.1e8}
    ended = 30.0 * (number + 1) if state.finished else None
    found = Trial(
        number,
        params,
        state,
        metrics,
        attempts=1,
        seconds=30.0,
        started=30.0 * number,
        ended=ended,
        source="" if number else "default",
    )
    return replace(found, **facts)  # type: ignore[arg-type]


def ended(found: Trial) -> Ended:
    """The event that ends the first attempt of a trial."""
    ending = Ending.FAILED if found.failure else Ending.COMPLETED
    outcome = Outcome(found.number, 1, ending, failure=found.failure, seconds=found.seconds)
    return Ended(outcome, found.state, found.failure, found.message)


def snapshot(*trials: Trial, state: str = "running", **facts: object) -> Snapshot:
    goals = (BLEU,)
    budget = Budget(trials=12, time=480.0)
    return replace(
        Snapshot("nmt", state, trials, goals, budget=budget, seconds=100.0),
        spec=SweepSpec("nmt", SPACE, goals, budget=budget),
        num_slots=2,
        busy_slots=1,
        suggesting="2 ready",
        suggestion_seconds=[0.1, 0.3],
        share=0.25,
        **facts,
    )  # type: ignore[arg-type]


OUT_OF_MEMORY = trial(
    1, None, TrialState.FAILED, failure="out_of_memory", message="asked for 12 GB\nof 8 GB"
)
RUNNING = trial(3, None, TrialState.RUNNING, reports=(ReportPoint(120, {"bleu": 3.5}, 9.0),))
MIDDLE = snapshot(trial(0, 20.0), OUT_OF_MEMORY, trial(2, 23.5), RUNNING)
