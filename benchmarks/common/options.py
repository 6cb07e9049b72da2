"""The command line that the benchmarks share."""

from __future__ import annotations

import argparse

TABLE = "measure nothing; use the stored rows"
CHECK = "exit with status 1 if a claim is missed or was not measured"


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser that shows the docstring of a script as it is written."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def benchmark_parser(doc: str | None, quick: str) -> argparse.ArgumentParser:
    """The same, with the three options that every benchmark has.

    Args:
        doc: the docstring of the script.
        quick: which part `--quick` measures.
    """
    made = parser(doc)
    made.add_argument("--quick", action="store_true", help=f"{quick}; nothing is stored")
    made.add_argument("--table", action="store_true", help=TABLE)
    made.add_argument("--check", action="store_true", help=CHECK)
    return made
