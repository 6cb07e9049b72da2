"""`python -m automl.conformance FOLDER` writes a project of a plugin that passes its tests."""

import sys
from pathlib import Path

from .template import FILES


def write(folder: Path) -> None:
    """Write the project into a new folder; raises FileExistsError if it is there already."""
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def main() -> int:
    """The program; 2 if the folder exists or none is given."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.stderr.write("usage: python -m automl.conformance FOLDER\n")
        return 2
    try:
        write(Path(sys.argv[1]))
    except OSError as error:
        sys.stderr.write(f"Error: {sys.argv[1]} cannot be made: {error.strerror}\n")
        return 2
    sys.stdout.write(
        f"wrote {sys.argv[1]}; now: cd {sys.argv[1]}, pip install -e '.[test]', "
        "pytest --automl-conformance\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
