"""The command that a job runs: it begins a sweep or, after an interruption, goes on with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SweepCommand:
    """The arguments of `automl sweep`, as a job passes them.

    Args:
        config: path of the configuration; overrides: `KEY=VALUE` texts.
        name: of the sweep. If the store has a sweep of this name, the job goes on with it.
        store: folder or URL.
        options: further options by name without dashes, such as `{"trials": "20"}`.
        program: from `--` on, as it was typed: a command that trials run.
    """

    config: str
    name: str
    store: str
    overrides: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """The arguments after `automl` without the address of Ray, and what is after `--`."""
        given = [f"--{name}={value}" for name, value in self.options.items()]
        return [
            "sweep",
            self.config,
            *self.overrides,
            f"--name={self.name}",
            "--resume",
            f"--store={self.store}",
            *given,
        ]
