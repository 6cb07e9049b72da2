"""Asking a suggester, checking what it says, and falling back to `sobol` where it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from automl.core.trial import Trial
from search_spaces.errors import AutomlError, SpaceError
from workers.protocol import Params

from ._draws import keys
from .base import Suggester

MAX_FAILURES: Final = 3
FALLBACK: Final = "sobol"


@dataclass(frozen=True)
class Proposal:
    """A configuration worth trying, and the suggester that says so."""

    params: Params
    source: str


@dataclass(frozen=True)
class Batch:
    """What came of asking.

    Args:
        proposals: checked: legal, different from each other and from the pending trials.
        seconds: how long it took.
        note: why the suggester could not be used, "" where it could.
        exhausted: the space has no more configurations.
        gain: that is expected of the first proposal, None where it is not known.
    """

    proposals: list[Proposal] = field(default_factory=list)
    seconds: float = 0.0
    note: str = ""
    exhausted: bool = False
    gain: float | None = None


class Proposer:
    """A suggester with a safety net. Used from one thread at a time.

    Args:
        make: builds a suggester of the name given; called when it is first needed, so that a heavy one is imported
            in the thread that uses it.
        name: of the suggester.
        gains: whether the expected gain is wanted.
    """

    def __init__(self, make: Callable[[str], Suggester], name: str, *, gains: bool = False) -> None:
        self.name, self._gains = name, gains
        self._kit: tuple[Callable[[str], Suggester], dict[str, Suggester]] = (make, {})
        self._failures = 0
        self._instead: Proposer | None = None

    def propose(self, history: Sequence[Trial], pending: Sequence[Trial], count: int) -> Batch:
        """Up to `count` proposals.

        Raises:
            AutomlError: the suggester has failed three times in a row; the message says how the last time.
        """
        begun = time.perf_counter()
        try:
            params = self._ask(self.name, history, pending, count)
            gain = (
                self._kit[1][self.name].expected_gain(history, params[0])
                if self._gains and params
                else None
            )
        except Exception as error:  # whatever a suggester raises must not end the sweep
            return self._fall_back(error, history, pending, count, begun)
        self._failures = 0
        proposals = [Proposal(item, self.name) for item in params]
        return Batch(proposals, time.perf_counter() - begun, exhausted=not proposals, gain=gain)

    def change(self, make: Callable[[str], Suggester]) -> None:
        """Build suggesters otherwise from the next suggestion on; may be called from any thread."""
        self._kit, self._instead = (make, {}), None

    def instead(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int
    ) -> list[Proposal]:
        """Up to `count` proposals of the fallback; may be called from another thread than `propose`."""
        if self._instead is None:
            self._instead = Proposer(self._kit[0], FALLBACK)
        return self._instead.propose(history, pending, count).proposals

    def _fall_back(
        self,
        error: Exception,
        history: Sequence[Trial],
        pending: Sequence[Trial],
        count: int,
        begun: float,
    ) -> Batch:
        self._failures += 1
        cause = f"{type(error).__name__}: {error}"
        if self._failures >= MAX_FAILURES or self.name == FALLBACK:
            times = (
                f"{self._failures} times in a row"
                if self._failures > 1
                else "and there is nothing to fall back to"
            )
            raise AutomlError(f"the suggester {self.name!r} failed {times}: {cause}") from error
        params = self._ask(FALLBACK, history, pending, count)
        note = f"the suggester {self.name!r} failed, {FALLBACK} proposes instead: {cause}"
        proposals = [Proposal(item, FALLBACK) for item in params]
        return Batch(proposals, time.perf_counter() - begun, note, exhausted=not proposals)

    def _ask(
        self, name: str, history: Sequence[Trial], pending: Sequence[Trial], count: int
    ) -> list[Params]:
        make, suggesters = self._kit
        if name not in suggesters:
            suggesters[name] = make(name)
        suggester = suggesters[name]
        space = suggester.space
        answer = suggester.suggest(history, pending, count)
        if not isinstance(answer, list) or len(answer) > count:
            raise SpaceError(
                f"it must return a list of at most {count} configurations, got {answer!r:.200}"
            )
        taken = keys(space, pending)
        fresh: list[Params] = []
        for params in answer:
            space.check(params)
            key = space.key(params)
            if key not in taken:
                taken.add(key)
                fresh.append(dict(params))
        if not fresh and (answer or space.size is None):
            raise SpaceError("it proposed nothing that is not being tried already")
        return fresh
