"""The space of a sweep whose objective declares it while it runs: it grows as trials ask."""

from collections.abc import Callable
from dataclasses import replace

from automl.core import SweepSpec, Trial, TrialState
from search_spaces.learned import Asks, explains, is_same, learned, parameter_of, same_kind
from workers.protocol import Asked

from .writer import SweepWriter


class Growth:
    """Keeps the space of a sweep as its trials have asked for it.

    The space is a function of what the log says that trials asked for; each change of it is in the
    log before a proposal that knows it.

    Args:
        writer: of the sweep.
        grown: called with the new specification, to propose from it.
    """

    def __init__(self, writer: SweepWriter, grown: Callable[[SweepSpec], None]) -> None:
        self._writer = writer
        self._grown = grown
        self._told: list[str] = []

    def conflict(self, event: Asked) -> str:
        """Why a range cannot belong to the parameter of that name; "" if it can."""
        spec, asked = self._writer.spec, event.parameter
        known = spec.space.parameters.get(asked["name"])
        if known is None or is_same(known, asked) or same_kind(known, parameter_of(asked)):
            return ""
        earlier = f"{(spec.asked or {}).get(known.name)} has asked for {known!r}"
        wanted = parameter_of(asked)
        return f"{event.line} asks for {wanted!r}, and {earlier}: give one of them another name"

    def follow(self, trial: Trial | None) -> None:
        """Learn from what a trial has asked for, and from what it has not."""
        spec = self._writer.spec
        if spec.asked is None or trial is None or explains(spec.space, _asks(trial)):
            return
        trials = self._writer.trials
        space, moved = learned(map(_asks, trials))
        if new := [name for name in moved if name not in self._told]:
            self._told += new
            text = "its range depends on other values; its position in it is searched"
            self._writer.note("space", f"{', '.join(new)}: {text}")
        if space != spec.space:
            lines: dict[str, str] = {}
            for one in trials:
                lines = {**{n: asked["line"] for n, asked in (one.asked or {}).items()}, **lines}
            changed = replace(spec, space=space, asked=lines)
            self._writer.specify(changed)
            self._grown(changed)


def _asks(trial: Trial) -> Asks:
    return Asks(trial.params, trial.asked or {}, trial.state is TrialState.COMPLETED)
