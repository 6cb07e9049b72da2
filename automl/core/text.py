"""Texts for people: values in tables and messages, and the line that resumes a sweep."""

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from automl.errors import AutomlError, StoreFailure
from workers.protocol import Cause

from .events import Proposed
from .spec import KEYS, SweepSpec
from .state import INFEASIBLE, Snapshot
from .trial import Trial, TrialState

_MISTAKE_HINT = (
    "After three errors that are alike and no success a sweep ends: mend the objective and "
    "begin again. If only these configurations are at fault, resume the sweep."
)
_PROGRAM_HINT = (
    "After three errors that are alike and no success a sweep ends: mend the program, its options "
    "or the patterns in `reports`, and begin again. `automl logs` shows what it has printed."
)
_KILL_HINT = (
    "Who kills it? The kernel, if memory runs out (dmesg), a limit of the container, or a person. "
    "Then resume the sweep."
)
_ROOM_HINT = "Free some room on the disk, then resume the sweep."
_CERTAIN = ("WrongReturn", "UnknownAttribute")  # every trial would fail so; the message says why
T = TypeVar("T")
BLOCKS = "▁▂▃▄▅▆▇█"
# Controls of a terminal, marks of line and paragraph, marks of direction, and lone surrogates.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(raw: str, keep: str = "") -> str:
    """Text that a terminal only shows: control characters are escaped, as in `\\u001b`.

    Every text of a ledger, a configuration or a log passes here before it reaches a terminal.

    Args:
        keep: control characters to leave as they are; without "\\n" the result is one line.
    """
    # Python reads what JSON escapes.
    return _CONTROLS.sub(lambda one: one[0] if one[0] in keep else json.dumps(one[0])[1:-1], raw)


def number(value: Any) -> str:
    """A value with 4 significant digits."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(number(item) for item in value)}]"
    if not isinstance(value, float):
        return printable(str(value))
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e7):
        mantissa, _, exponent = f"{value:.3g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def sweep_state(snapshot: Snapshot) -> str:
    """The state of a sweep in words: one that agents serve is not interrupted."""
    served = snapshot.state == "interrupted" and snapshot.for_agents
    return "no controller; agents may ask" if served else snapshot.state


def explained_state(snapshot: Snapshot) -> str:
    """The state of a sweep in words, with the reason."""
    state, reason = sweep_state(snapshot), snapshot.reason
    return f"{state} ({reason})" if state == snapshot.state and reason not in ("", state) else state


def _now(state: str, snapshot: Snapshot) -> str:
    # Nothing runs any more in an interrupted sweep.
    return "interrupted" if (state, sweep_state(snapshot)) == ("running", "interrupted") else state


def change(value: float, baseline: float) -> str:
    """The change from a baseline as `+17.5%`; "" if that says nothing."""
    share = (value - baseline) / abs(baseline) if baseline else math.inf
    return f"{share:+.1%}" if abs(share) < 1e4 else ""


def memory(num_bytes: float | None) -> str:
    """`512 MB`, `1.5 GB`; "-" for None."""
    if num_bytes is None:
        return "-"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {unit}"
    return f"{num_bytes:.0f} B"


def metric(name: str, value: float) -> str:
    """A metric in few characters; by convention a name that ends in `_bytes` holds bytes."""
    return memory(value) if name.endswith("_bytes") else number(value)


def configuration(params: Mapping[str, Any]) -> str:
    """A configuration in one line."""
    return "  ".join(f"{printable(name)}={number(value)}" for name, value in params.items())


def again(trial: Trial) -> str:
    """Whose configuration runs again, to be put before it; "" for a new one."""
    return "" if trial.replicate_of is None else f"trial {trial.replicate_of} again: "


def state_of(trial: Trial, snapshot: Snapshot) -> str:
    """The kind of failure, or the constraint that the trial violates, or its state."""
    return (
        (trial.failure or "").replace("_", " ")
        or violation(trial, snapshot)
        or _now(trial.state, snapshot)
    )


def violation(trial: Trial, snapshot: Snapshot) -> str:
    """`infeasible: size 12 > 10`; "" unless a trial has ended without a feasible value."""
    if snapshot.outcome(trial) != INFEASIBLE:
        return ""
    first = next(one for one in snapshot.constraints if not one.holds(trial.metrics))
    name, sign = first.metric, ">" if first.upper else "<"
    if name not in trial.metrics:
        return f"infeasible: no {name}"
    return (
        f"infeasible: {name} {metric(name, trial.metrics[name])} {sign} {metric(name, first.bound)}"
    )


def why_no_best(snapshot: Snapshot) -> str:
    """Why no trial of a sweep is the best: nothing ran, constraints, or the commonest failure."""
    goal = snapshot.goals[0]
    failed = snapshot.in_state(TrialState.FAILED)
    ended = snapshot.in_state(TrialState.COMPLETED, TrialState.STOPPED)
    succeeded = [trial for trial in ended if not trial.pruned]
    if ended and not succeeded:
        return (
            f"No trial has succeeded. {len(ended)} of {len(snapshot.trials)} trials stopped "
            f"themselves (TrialPruned).{reasons(failed)}"
        )
    if any(goal.metric in trial.metrics for trial in succeeded):
        return f"No trial satisfies {' and '.join(map(str, snapshot.constraints))}."
    if succeeded and not failed:
        return f"No trial has succeeded. No trial has reported {goal.metric}."
    if not failed:
        return "No trial has ended yet." if snapshot.trials else "No trial has begun yet."
    count, first = commonest_failure(failed)
    alike = f", {count} of them alike" if count > 1 else ""
    share = f"{len(failed)} of {len(snapshot.trials)} trials failed{alike}"
    found = f"No trial has succeeded. {share}:{reasons([first])}"
    return f"{found}\n{mistake_hint(first)}".rstrip()


def mistake_hint(failed: Trial) -> str:
    """What to do about a failure that may come again; "" if its message says so."""
    if failed.ended_from_outside:
        return _ROOM_HINT if failed.cause == Cause.DISK else _KILL_HINT
    if not failed.is_mistake or failed.exception in _CERTAIN:
        return ""
    return _PROGRAM_HINT if failed.exception == "CommandFailed" else _MISTAKE_HINT


def origin_of(trial: Trial | Proposed) -> str:
    """Who proposed a trial, and which one it runs again."""
    again = "" if trial.replicate_of is None else f": trial {trial.replicate_of} again"
    return f"{trial.source}{again}"


def why_early(snapshot: Snapshot) -> str:
    """Why a sweep has ended before all its trials were begun; "" if they were, or it goes on."""
    wanted, begun = snapshot.budget.trials, len(snapshot.trials)
    if snapshot.state != "finished" or not snapshot.reason or (wanted or 0) <= begun:
        return ""
    return f"ended after {begun} of {wanted} trials: {snapshot.reason}"


def commonest_failure(failed: Sequence[Trial]) -> tuple[int, Trial]:
    """How many trials failed by the commonest error, and the first of them."""
    ((error, count),) = Counter(trial.error for trial in failed).most_common(1)
    return count, next(trial for trial in failed if trial.error == error)


def has_default(snapshot: Snapshot) -> bool:
    """Whether trial 0 is the default configuration. It is not if a parameter has no default."""
    return bool(snapshot.trials) and snapshot.trials[0].source == "default"


def failures(trials: Iterable[Trial]) -> Counter[str]:
    """Number of failed trials by kind."""
    return Counter(t.failure or "unknown" for t in trials if t.state is TrialState.FAILED)


def failure_text(trials: Iterable[Trial]) -> str:
    """`3 failed (2 out of memory, 1 crashed)`; empty if none failed."""
    kinds = failures(trials)
    named = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in kinds.most_common())
    return f"{kinds.total()} failed ({named})" if kinds else ""


def outcomes(snapshot: Snapshot, counts: Mapping[str, int]) -> list[str]:
    """`12 completed`, `3 infeasible`, `2 failed (2 out of memory)`.

    Args:
        counts: of outcomes; empty to leave out all but the failures.
    """
    found = [
        f"{counts[word]} {_now(word, snapshot)}"
        for word in ("running", "completed", "infeasible", "stopped", "paused")
        if counts.get(word)
    ]
    return [*found, *filter(None, [failure_text(snapshot.trials)])]


def reasons(failed: Iterable[Trial]) -> str:
    """A line for each kind of failure, with the message of the first such trial."""
    first: dict[str, Trial] = {}
    for trial in failed:
        first.setdefault(trial.failure or "unknown", trial)
    return "".join(
        f"\n  {kind.replace('_', ' ')}, trial {trial.number}: {trial.message}"
        for kind, trial in first.items()
    )


def thinned(items: Sequence[T], most: int) -> Sequence[T]:
    """At most this many of the items, evenly spaced, the last among them."""
    if len(items) <= most:
        return items
    return [items[(i + 1) * len(items) // most - 1] for i in range(most)]


def sparkline(values: Sequence[float], width: int, *, maximize: bool) -> str:
    """Values as a row of at most `width` blocks; the best value is the highest."""
    if not values or width < 1:
        return ""
    values = [min(max(value, -1e307), 1e307) for value in thinned(values, width)]
    low, high = min(values), max(values)
    heights = [(value - low) / (high - low) if high > low else 0.5 for value in values]
    return "".join(BLOCKS[round((h if maximize else 1 - h) * (len(BLOCKS) - 1))] for h in heights)


_PLAIN: Final = re.compile(r"[\w@%+=:./{}-]+", re.ASCII)  # braces around names need no quotes


def shell_line(words: Sequence[str]) -> str:
    """Words as a line that a shell splits into the same words."""
    return " ".join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in words)


@dataclass(frozen=True)
class Typed:
    """What was typed to run a sweep and its ledger does not keep, or must not choose.

    Args:
        store: folder or database URL.
        objective: FILE:NAME of a function; None if there is none, or it is not known.
        ray_address: of a Ray cluster.
        changes: further words, such as `--trials 60`.
    """

    store: str = KEYS["store"].default
    objective: str | None = None
    ray_address: str | None = None
    changes: tuple[str, ...] = ()

    @property
    def location(self) -> tuple[str, ...]:
        """The option that names the store; nothing if it is the usual one."""
        return () if self.store == KEYS["store"].default else ("--store", self.store)

    def line(self, spec: SweepSpec, *more: str, verb: str = "resume") -> str:
        """The whole line, ready to be pasted; the dispatcher and the budget are in the ledger.

        Args:
            spec: of the sweep.
            more: further words.
            verb: of the command line.
        """
        words, origin = ["automl", verb, spec.name, *self.location], spec.origin
        if self.ray_address is not None:
            words += ["--ray-address", self.ray_address]
        if spec.artifacts and not origin.received:
            words += ["--artifacts", spec.artifacts]
        words += [*self.changes, *more]
        named = bool(origin.signed) and self.objective in (None, origin.objective)
        return shell_line([*words, *([] if named else trained_words(spec, self.objective))])


def trained_words(spec: SweepSpec, objective: str | None = None) -> list[str]:
    """What a command line must name again: a ledger keeps nothing that can be run.

    The words of a command are split, so that none of a stranger's can end the line.
    """
    if spec.workload is not None or spec.origin.dispatcher == "agents":
        return []
    if not spec.origin.command:
        return ["--objective", objective or spec.origin.objective or "FILE:NAME"]
    try:
        return shlex.split(spec.origin.command)
    except ValueError:  # no program of this project has written it
        return [spec.origin.command]


@contextmanager
def told_how_to_resume(how: str) -> Iterator[None]:
    """Inside, an error that leaves the sweep resumable ends with how to resume it."""
    try:
        yield
    except AutomlError as error:
        if type(error) not in (AutomlError, StoreFailure):
            raise  # such as a wrong argument: nothing was begun
        raise type(error)(f"{error}. To go on with the sweep: {how}") from error
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(
            *error.args or [f"the sweep is interrupted and can be resumed: {how}"]
        ) from error
