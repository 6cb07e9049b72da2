"""Ask and tell: an optimizer for your own loop."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from search_spaces import Space
from search_spaces.errors import hinted
from workers.functions.suggesting import Asking, Suggesting
from workers.protocol import Asked, Ending, Metric, Metrics, Outcome, Params, Report

from .control.beginning import (
    Growth,
    SuggesterLike,
    create,
    read_spec,
    suggester_of,
    with_earlier,
    with_known_space,
)
from .control.outcomes import Journal, ended
from .control.scheduler import seed_of
from .core import Constraint, Goal, Snapshot, SweepSpec, Trial, TrialState, arguments
from .core.arguments import WrongValue, check_name
from .core.ranking import best, pareto, valued
from .errors import SpaceExhausted, TrialFailure, UsageError
from .ledger import Ledger
from .ledger.database import IN_MEMORY
from .report import progress
from .report.recommendation import Recommendation, recommended
from .report.record import Record
from .suggesters.domain import Domain
from .suggesters.proposer import Proposer
from .suggesters.user_prior import split_prior


class AskedTrial(Suggesting, Trial):
    """A trial of an optimizer without a space: `suggest_...` says it; `params` has the answers."""

    params: dict[str, Any]


class Optimizer(AbstractContextManager["Optimizer"]):
    """Proposes configurations and learns from their results. Safe to use from several threads.

    Args:
        space: the parameters to tune: a `Space`, or a mapping of names to ranges (`automl.sweep`).
            None if trials say it: `optimizer.ask().suggest_float("lr", 1e-5, 0.1, log=True)`.
        goals: such as "minimize loss", one or several.
        constraints: such as "peak_memory_bytes <= 8e9".
        suggester: "bayes", "ax", "tpe", "optuna-gp", "sobol" or "random"; or your own, as in
            `automl.sweep`.
        seed: of everything random; the same seed and the same calls give the same configurations.
        store: folder or database URL for the trials; None to write no file.
        name: of the sweep in the store; if the store has it already, it is continued. The space may
            have changed since then, see `resume` of `automl.sweep`.
        prior: good values by parameter, and "like:SWEEP"; metrics: that you report; see
            `automl.sweep`.
        replicates: how often each configuration is run; such a trial has `replicate_of`, and
            another `seed`. "auto" or "none": `ask` repeats none. To be surer of the `recommended`
            one, run it again and `add` its result.

    Raises:
        UsageError: an argument is wrong.
        StoreError: the store cannot be used, or another process holds that sweep.

    Example:
        >>> space = Space(Float("lr", 1e-5, 1e-1, log=True))
        >>> optimizer = Optimizer(space, "minimize loss", suggester="sobol")
        >>> trial = optimizer.ask()
        >>> optimizer.tell(trial, {"loss": trial.params["lr"]})
        >>> optimizer.best.number
        0
    """

    @hinted
    def __init__(
        self,
        space: Space | Mapping[str, Any] | None = None,
        goals: str | Goal | Iterable[str | Goal] = (),
        constraints: str | Constraint | Iterable[str | Constraint] = (),
        *,
        suggester: SuggesterLike = SweepSpec.suggester,
        seed: int = SweepSpec.seed,
        store: str | os.PathLike[str] | None = None,
        name: str = "optimizer",
        prior: Mapping[str, Any] | str | Iterable[Mapping[str, Any] | str] | None = None,
        metrics: Iterable[Metric] = (),
        replicates: str | int = SweepSpec.replicates,
    ) -> None:
        location = None if store is None else arguments.location("store", store)
        expected, learns, sources = split_prior(prior)
        if sources:
            rule = "good values or 'like:SWEEP' (finished trials: `add`)"
            raise WrongValue("prior", rule, sources[0])
        spec, notes = read_spec(
            space,
            goals,
            constraints,
            suggester,
            name=check_name(name),
            seed=seed,
            max_retries=0,
            prior=expected,
            learns=learns,
            metrics=metrics,
            replicates=replicates,
        )
        progress.say(notes)
        self._store, self._ledger = location, Ledger.open(location or IN_MEMORY, create=True)
        self._lock, self._process = threading.RLock(), os.getpid()
        if not self._ledger.exists(name):
            spec = with_earlier(self._ledger, spec)
            create(self._ledger, spec, described=bool(location))
        hold = self._ledger.hold(name)
        began = hold.seconds - time.monotonic()
        self._writer = Journal(hold, lambda: began + time.monotonic())
        try:
            self._spec = spec = with_known_space(self._writer, spec)
        except UsageError:
            self._ledger.close()
            raise
        # Nobody knows which trial is the last, so nothing runs again by itself.
        each = "none" if spec.replicates == "auto" else spec.replicates
        make = partial(suggester_of, spec)
        self._proposer = Proposer(make, spec.suggester.name, Domain.of(spec), replicates=each)
        self._growth = Growth(self._writer, self._grow)
        for trial in self._writer.state.index.running:
            reason = "asked for by a process that has ended"
            self._writer.move(trial, TrialState.WAITING, reason)
        self._writer.commit()

    @property
    def trials(self) -> Sequence[Trial]:
        """Every trial by number."""
        return valued(self._writer.trials, self._spec.goals, self._spec.constraints)

    @property
    def best(self) -> Trial | None:
        """The best trial so far by the first goal, or None."""
        found = best(self._writer.trials, self._spec.goals, self._spec.constraints)
        return None if found is None else self._valued([found])[0]

    @property
    def recommended(self) -> Recommendation | None:
        """The best of `automl confirm`, else of which a model expects most; see `Result`."""
        snapshot = Snapshot.of(self._writer.state, "running", 0.0)
        stored = Record.stored(self._store, snapshot) if self._store else Record.of(snapshot)
        return recommended(stored)

    @property
    def pareto(self) -> list[Trial]:
        """The trials on the Pareto front of all goals so far, by number."""
        return self._valued(pareto(self._writer.trials, self._spec.goals, self._spec.constraints))

    def _valued(self, trials: Iterable[Trial]) -> list[Trial]:
        return valued(trials, self._spec.goals, self._spec.constraints, self._spec)

    def ask(self) -> Trial:
        """The configuration to try next, different from those that are being tried.

        The trial has a `seed`, for what is random in its run.

        Raises:
            SpaceExhausted: the space has no more configurations.
            AutomlError: the suggester keeps failing.
        """
        with self._held():
            trial = self._writer.state.index.next_waiting or self._propose()
            running = self._writer.begin(trial)
            self._writer.commit()
            running = replace(running, seed=seed_of(self._spec, running.number))
            return running if self._spec.history.asked is None else self._asked(running)

    def report(self, trial: Trial | int, step: int, **metrics: float) -> None:
        """Report metrics at a step; `seconds` since the trial began are measured unless given.

        Raises UsageError if the trial is not running.
        """
        with self._held():
            current = self._running(trial)
            step = arguments.whole("a step", step)
            numbers = arguments.numbers(metrics)
            seconds = numbers.get("seconds", self._writer.seconds_running(current))
            last = current.reports[-1] if current.reports else None
            again = last is not None and last.attempt == current.attempts
            sequence = last.sequence + 1 if last is not None and again else 0
            event = Report(current.number, current.attempts, sequence, step, numbers, seconds)
            self._writer.apply(event)
            self._writer.commit()

    def tell(self, trial: Trial | int, metrics: Mapping[str, float] | float | None = None) -> Trial:
        """Complete a trial, with these metrics added to the reported ones.

        If a goal is not finite, the trial has failed.

        Args:
            trial: that `ask` has returned, or its number.
            metrics: by name; with a single goal, its value is enough.

        Raises:
            UsageError: the trial is not running, or has no value for a goal.
        """
        with self._held():
            current, numbers = self._running(trial), self._named_metrics(metrics)
            return self._end(current, Ending.COMPLETED, numbers)

    def fail(self, trial: Trial | int, failure: str, message: str = "") -> Trial:
        """A trial has failed.

        Args:
            failure: "out_of_memory", "non_finite", "timeout", "crashed", "preempted" or
                "missing_metric".
            message: describes the failure to a person.

        Raises:
            UsageError: the kind of failure is unknown, or the trial is not running.
        """
        TrialFailure(failure)  # raises if there is no such kind
        with self._held():
            return self._end(self._running(trial), Ending.FAILED, {}, failure, message)

    def add(
        self,
        params: Params,
        metrics: Mapping[str, float] | float | None = None,
        *,
        failure: str | None = None,
    ) -> Trial:
        """Add a finished trial from another program, with its metrics or its failure.

        Raises:
            SpaceError: the configuration does not fit the space.
            UsageError: neither metrics nor a failure is given, or a goal has no value.
        """
        if failure is not None:
            TrialFailure(failure)  # raises if there is no such kind
        accepted = self._spec.space.accept(params, whole=True)
        numbers = self._named_metrics(metrics)
        missing = [goal.metric for goal in self._spec.goals if goal.metric not in numbers]
        if missing and failure is None:
            raise UsageError(
                f"no value for the goal {', '.join(map(repr, missing))}: an added trial needs its "
                f"metrics or a failure; metrics given: {', '.join(sorted(numbers)) or 'none'}"
            )
        with self._held():
            trial = self._writer.begin(self._writer.propose(accepted, "added"), slots=0)
            ending = Ending.COMPLETED if failure is None else Ending.FAILED
            return self._end(trial, ending, numbers, failure)

    def close(self) -> None:
        """Release the store; no other method can be called afterwards."""
        with self._lock:
            self._ledger.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _asked(self, running: Trial) -> AskedTrial:
        """A trial that says its space as it runs."""
        trial = AskedTrial(**{**vars(running), "params": {}})

        def tell(params: dict[str, Any], parameter: dict[str, Any], line: str) -> None:
            with self._held():
                event = Asked(trial.number, trial.attempts, params, parameter, line)
                if problem := self._growth.conflict(event):
                    raise UsageError(problem)
                self._growth.follow(self._writer.apply(event))
                self._writer.commit()

        seed, known = trial.seed or 0, self._spec.asked_ranges
        asking = Asking(known, running.params, trial.number, seed, tell, values=trial.params)
        object.__setattr__(trial, "asking", asking)
        return trial

    def _grow(self, spec: SweepSpec) -> None:
        self._spec = spec
        self._proposer.restrict(Domain.of(spec), partial(suggester_of, spec))

    @contextmanager
    def _held(self) -> Iterator[None]:
        if os.getpid() != self._process:  # its copy would learn nothing from the others
            raise UsageError(
                f"this optimizer belongs to the process {self._process}, and this is another that "
                "was forked from it: ask and tell there, and give the configurations to the others"
            )
        with self._lock:
            yield

    def _propose(self) -> Trial:
        writer = self._writer
        default = self._spec.space.default()
        if default is not None and all(trial.source == "added" for trial in writer.trials):
            return writer.propose(default, "default")
        index = writer.state.index
        batch = self._proposer.propose(index.known, index.pending, 1)
        if batch.note:
            writer.note("fallback", batch.note, len(writer.trials))
        if not batch.proposals:
            raise SpaceExhausted("the space has no more configurations")
        one = batch.proposals[0]
        return writer.propose(one.params, one.source, replicate_of=one.replicate_of)

    def _end(
        self,
        trial: Trial,
        ending: Ending,
        metrics: Metrics,
        failure: str | None = None,
        message: str = "",
    ) -> Trial:
        running = 0.0 if trial.source == "added" else self._writer.seconds_running(trial)
        seconds = metrics.get("seconds", running)
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
        event = ended(self._writer.spec, trial, outcome, self._writer.now)
        if event.failure == "missing_metric" and ending is Ending.COMPLETED:
            raise UsageError(event.message)
        self._writer.apply(event)
        self._growth.follow(self._writer.trials[trial.number])
        self._writer.commit()
        return self._writer.trials[trial.number]

    def _named_metrics(self, metrics: Any) -> dict[str, float]:
        goals = [goal.metric for goal in self._spec.goals]
        return arguments.numbers({} if metrics is None else metrics, goals)

    def _running(self, trial: Trial | int) -> Trial:
        number = trial.number if isinstance(trial, Trial) else arguments.whole("trial", trial)
        current = arguments.numbered(self._writer.trials, number)
        if current.state is not TrialState.RUNNING:
            raise UsageError(
                f"trial {number} is {current.state}: tell each trial that `ask` returns once"
            )
        return current
