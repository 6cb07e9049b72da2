"""Checks that nothing hides the packages of this project; imported before they are."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def check_not_hidden() -> None:
    """Raise ImportError if a file or a folder of the user hides one of our packages."""
    ours = Path(__file__).resolve().parents[1]
    for name in ("search_spaces", "workers"):
        spec = PathFinder.find_spec(name, sys.path)
        if spec is None or spec.origin is None:
            continue
        found = Path(spec.origin).resolve()
        if found != ours / name / "__init__.py":
            what = found.parent if found.name == "__init__.py" else found
            raise ImportError(
                f"{what} hides the package {name!r} that automl needs (in {ours}): rename it, or "
                "move it to a folder that is not on Python's path",
                name=name,
                path=str(what),
            )


def _is_program() -> bool:
    """Whether this is `python -m automl` or the script `automl`, not a program of the user."""
    if sys.argv[:1] == ["-m"]:  # Python's own name for a module that it has not found yet
        return not {"automl", "-mautoml"}.isdisjoint(sys.orig_argv)
    program = Path(sys.argv[0] if sys.argv else "")
    return (program.parent if program.stem == "__main__" else program).stem == "automl"


if sys.platform == "win32":
    raise ImportError("automl needs a system such as Linux: on Windows, install it inside of WSL")

# Here, because the errors of this project are in one of those packages.
try:
    check_not_hidden()
except ImportError as error:
    if not _is_program():
        raise
    sys.stderr.write(f"Error: {error}\n")
    sys.exit(2)
