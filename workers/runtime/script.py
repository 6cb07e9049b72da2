"""What a script has set up before its sweep: workers begin with the same."""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Script:
    """The set-up of a process, for another one.

    Args:
        arguments: `sys.argv`.
        folder: the working folder.
        paths: folders of `sys.path`.
    """

    arguments: list[str]
    folder: str
    paths: list[str]

    @classmethod
    def of_this_process(cls) -> "Script":
        """The set-up of this process."""
        folders = [str(Path(folder).absolute()) for folder in sys.path if Path(folder).is_dir()]
        return cls(list(sys.argv), str(Path.cwd()) if Path().exists() else "", folders)

    def enter(self) -> None:
        """Set this process up in the same way, as far as it has the folders."""
        sys.path += [folder for folder in self.paths if folder not in sys.path]
        sys.argv[:] = self.arguments
        self.go_home()

    def go_home(self) -> None:
        """Make its working folder this process's, which an earlier trial may have left."""
        with suppress(OSError):  # another machine may lack it
            os.chdir(self.folder)
