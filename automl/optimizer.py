"""Ask and tell, for a loop of one's own."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from search_spaces import Space
from workers.protocol import Ending, Metric, Metrics, Outcome, Params, Report

from .control.outcome_policy import judge
from .core.environment import describe
from .core.events import Begun, Ended, Moved, Noted, Proposed, SweepEvent, final_metrics
from .core.goals import Constraint, Goal, parse_constraints, parse_goals
from .core.ranking import best, pareto
from .core.spec import SweepSpec
from .core.trial import Trial, TrialState
from .core.trial_index import History
from .errors import FAILURE_KINDS, AutomlError, UsageError
from .ledger import Ledger
from .ledger.database import IN_MEMORY
from .suggesters import SUGGESTERS
from .suggesters.base import SearchContext, Suggester
from .suggesters.domain import Domain
from .suggesters.proposer import Proposal, Proposer, make_suggester
from .suggesters.user_prior import check_prior


class Optimizer:
    """Proposes configurations and learns from what came of them. Safe to use from several threads.

    Args:
        space: what is tuned.
        goals: such as "minimize loss", one or several.
        constraints: such as "peak_memory_bytes <= 8e9".
        suggester: "bayes", "ax", "tpe", "optuna-gp", "sobol" or "random".
        seed: of everything random; the same seed and the same calls give the same configurations.
        store: folder or database URL to keep the trials in; None writes no file.
        name: of the sweep in the store; a name that is in use there is taken up again.
        beliefs: about good values; metrics: what is told; see `automl.sweep`.

    Raises:
        UsageError: an argument is wrong.
        StoreError: the store cannot be used, or another process holds that sweep.

    Example:
        >>> optimizer = Optimizer(Space(Float("lr", 1e-5, 1e-1, log=True)), "minimize loss", suggester="sobol")
        >>> trial = optimizer.ask()
        >>> optimizer.tell(trial, {"loss": trial.params["lr"]})
        >>> optimizer.best.number
        0
    """

    def __init__(
        self,
        space: Space,
        goals: str | Goal | Iterable[str | Goal],
        constraints: str | Constraint | Iterable[str | Constraint] = (),
        *,
        suggester: str = "bayes",
        seed: int = 0,
        store: str | None = None,
        name: str = "optimizer",
        beliefs: Mapping[str, Any] | None = None,
        metrics: Iterable[Metric] = (),
    ) -> None:
        SUGGESTERS.require(suggester)
        prior = check_prior(beliefs or {}, space, suggester)
        spec = SweepSpec(
            name,
            space,
            parse_goals(goals),
            parse_constraints(constraints),
            suggester=suggester,
            seed=seed,
            beliefs=prior,
            metrics=tuple(metrics),
        )
        self._space, self._goals, self._constraints = space, spec.goals, spec.constraints
        self._ledger = Ledger.open(store or IN_MEMORY, create=True)
        self._lock = threading.RLock()
        self._begun: dict[int, float] = {}
        self._clock = time.monotonic()
        if name not in {info.name for info in self._ledger.sweeps()}:
            self._ledger.create_sweep(spec, describe() if store else {})
        elif self._ledger.spec(name).space.to_dict() != space.to_dict():
            raise UsageError(f"sweep {name!r} searches another space: choose another name")
        self._recorder = self._ledger.acquire(name)
        self._history = History(self._recorder.trials)

        def make(wanted: str, domain: Domain) -> Suggester:
            context = SearchContext(domain, prior)
            return make_suggester(wanted, spec.goals, spec.constraints, context, seed=seed)

        self._proposer = Proposer(make, suggester, Domain(space))
        for trial in self._history.running:  # asked for in a process that is gone
            self._apply(
                Moved(trial.number, TrialState.WAITING, "asked for by a process that has ended")
            )
        self._recorder.commit()

    @property
    def trials(self) -> Sequence[Trial]:
        """Every trial by number."""
        return tuple(self._recorder.trials)

    @property
    def best(self) -> Trial | None:
        """The best trial so far by the first goal, or None."""
        return best(self.trials, self._goals, self._constraints)

    @property
    def pareto(self) -> list[Trial]:
        """The trials on the Pareto front of all goals so far, by number."""
        return pareto(self.trials, self._goals, self._constraints)

    def ask(self) -> Trial:
        """A configuration to try next, different from those that are being tried.

        Raises:
            AutomlError: the space has no more configurations, or the suggester fails again and again.
        """
        with self._lock:
            trial = self._history.next_waiting or self._propose()
            running = self._apply(Begun(trial.number, trial.attempts + 1, self._now()))
            self._recorder.commit(self._now())
            self._begun[trial.number] = time.monotonic()
            return running

    def report(self, trial: Trial | int, step: int, **metrics: float) -> None:
        """Partial results at a step; raises UsageError where the trial is not being tried."""
        with self._lock:
            current = self._running(trial)
            if not -(2**63) <= step < 2**63:
                raise UsageError(f"a step must fit 64 bits, got {step!r:.60}")
            numbers = _numbers(metrics)
            seconds = numbers.get("seconds", time.monotonic() - self._begun[current.number])
            sequence = len([p for p in current.reports if p.attempt == current.attempts])
            self._apply(
                Report(current.number, current.attempts, sequence, int(step), numbers, seconds)
            )
            self._recorder.commit(self._now())

    def tell(self, trial: Trial | int, metrics: Mapping[str, float] | None = None) -> Trial:
        """A trial is done, with these metrics besides what it has reported; one that is not finite makes it fail.

        Raises:
            UsageError: the trial was told before, or has no value for a goal.
        """
        with self._lock:
            return self._end(self._running(trial), Ending.COMPLETED, _numbers(metrics or {}))

    def fail(self, trial: Trial | int, failure: str, message: str = "") -> Trial:
        """A trial has failed: "out_of_memory", "non_finite", "timeout", "crashed", "preempted" or "missing_metric"."""
        _check_failure(failure)
        with self._lock:
            return self._end(self._running(trial), Ending.FAILED, {}, failure, message)

    def add(
        self,
        params: Params,
        metrics: Mapping[str, float] | None = None,
        *,
        failure: str | None = None,
    ) -> Trial:
        """Take in a finished trial from elsewhere, with its metrics or its failure.

        Raises:
            SpaceError: the configuration does not fit the space.
            UsageError: neither metrics nor a failure is given, or a goal has no value.
        """
        if failure is not None:
            _check_failure(failure)
        elif metrics is None:
            raise UsageError("a trial from elsewhere has metrics or a failure, got neither")
        plain = {
            key: value.item() if hasattr(value, "item") else value for key, value in params.items()
        }
        self._space.check(plain)
        numbers = _numbers(metrics or {})
        if failure is None:
            self._check_goals(numbers)
        with self._lock:
            number = len(self._recorder.trials)
            self._apply(Proposed(number, plain, "added", self._now()))
            trial = self._apply(Begun(number, 1, self._now()))
            ending = Ending.COMPLETED if failure is None else Ending.FAILED
            return self._end(trial, ending, numbers, failure)

    def close(self) -> None:
        """Give the store back; nothing can be asked or told afterwards."""
        with self._lock:
            self._ledger.close()

    def __enter__(self) -> Optimizer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _propose(self) -> Trial:
        number, default = len(self._recorder.trials), self._space.default()
        if default is not None and not any(
            trial.source != "added" for trial in self._recorder.trials
        ):
            proposal = Proposal(default, "default")
        else:
            batch = self._proposer.propose(self._history.known, self._history.pending, 1)
            if batch.note:
                self._recorder.apply(Noted("fallback", batch.note, number, self._now()))
            if not batch.proposals:
                raise AutomlError("the space has no more configurations")
            proposal = batch.proposals[0]
        return self._apply(Proposed(number, proposal.params, proposal.source, self._now()))

    def _end(
        self,
        trial: Trial,
        ending: Ending,
        metrics: Metrics,
        failure: str | None = None,
        message: str = "",
    ) -> Trial:
        now = time.monotonic()
        seconds = metrics.get("seconds", now - self._begun.get(trial.number, now))
        peak = metrics.get("peak_memory_bytes", math.nan)
        outcome = Outcome(
            trial.number,
            trial.attempts,
            ending,
            metrics,
            failure,
            message,
            seconds if math.isfinite(seconds) else 0.0,
            int(peak) if math.isfinite(peak) else None,
        )
        if ending is Ending.COMPLETED:
            self._check_goals(final_metrics(trial, outcome))
        verdict = judge(trial, outcome, self._goals, max_retries=0)
        after = self._apply(
            Ended(outcome, verdict.state, verdict.failure, verdict.message, self._now())
        )
        self._recorder.commit(self._now())
        self._begun.pop(trial.number, None)
        return after

    def _apply(self, event: SweepEvent) -> Trial:
        trial = self._recorder.apply(event)
        if trial is None:
            raise AutomlError(f"{event} changes nothing")
        self._history.update(trial)
        return trial

    def _running(self, trial: Trial | int) -> Trial:
        number = trial if isinstance(trial, int) else trial.number
        if not 0 <= number < len(self._recorder.trials):
            raise UsageError(f"there is no trial {number}: there are {len(self._recorder.trials)}")
        current = self._recorder.trials[number]
        if current.state is not TrialState.RUNNING:
            raise UsageError(
                f"trial {number} is {current.state}: only a trial that was asked for can be told, once"
            )
        return current

    def _check_goals(self, metrics: Metrics) -> None:
        missing = [goal.metric for goal in self._goals if goal.metric not in metrics]
        if missing:
            came = ", ".join(sorted(metrics)) or "none"
            raise UsageError(
                f"no value for the goal {', '.join(map(repr, missing))}; metrics given: {came}"
            )

    def _now(self) -> float:
        return time.monotonic() - self._clock


def _numbers(metrics: Mapping[str, float]) -> dict[str, float]:
    try:
        return {str(key): float(value) for key, value in metrics.items()}
    except (TypeError, ValueError) as error:
        raise UsageError(f"every metric must be a number, got {dict(metrics)!r}") from error


def _check_failure(failure: str) -> None:
    if failure not in FAILURE_KINDS:
        raise UsageError(f"a failure is one of {', '.join(FAILURE_KINDS)}, got {failure!r}")
