"""Checks that the packages of this project are ours; imported before they are."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path

_OURS = "automl-sweep"  # our distribution; each of our packages names it in its first lines


def check_not_hidden() -> None:
    """Raise ImportError if one of our packages is hidden or overwritten by another.

    A file or folder of the user may hide it; another distribution may have installed a package of
    the same name over ours.
    """
    ours = Path(__file__).resolve().parents[1]
    for name in ("automl", "search_spaces", "workers"):
        spec = PathFinder.find_spec(name, sys.path)
        if spec is None or spec.origin is None:
            continue
        found = Path(spec.origin).resolve()
        if found == ours / name / "__init__.py":
            if _OURS not in found.read_text(encoding="utf-8", errors="replace"):
                raise _overwritten(name, found.parent)
        elif name != "automl":  # it is imported already, so nothing hides it
            what = found.parent if found.name == "__init__.py" else found
            raise ImportError(
                f"{what} hides the package {name!r} that automl needs (in {ours}): rename it, or "
                "move it to a folder that is not on Python's path",
                name=name,
                path=str(what),
            )


def _overwritten(name: str, folder: Path) -> ImportError:
    from importlib.metadata import distributions

    owners = {
        one.name
        for one in distributions(path=[str(folder.parent)])
        if any(file.parts[0] == name for file in one.files or ())
    }
    others = sorted(owners - {_OURS})
    remedy = f"`pip uninstall {' '.join(others)}` and " if others else ""
    return ImportError(
        f"{' and '.join(others) or 'something'} has overwritten the package {name!r} of {_OURS} in "
        f"{folder}; an environment can have one of them: {remedy}"
        f"`pip install --force-reinstall --no-deps {_OURS}`",
        name=name,
        path=str(folder),
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
