"""The plugin of pytest: `pytest --automl-conformance` tests the extensions that are installed.

It is loaded in each run of pytest beside automl, so it imports nothing of automl itself.
"""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

# A suite is a file of this folder; it tests the entry points of a group.
_GROUPS = {
    "suggesters": "automl.suggesters",
    "stoppers": "automl.stoppers",
    "workloads": "automl.workloads",
    "knobs": "search_spaces.knobs",
    "strategies": "automl.strategies",
    "trackers": "automl.trackers",
}

pytest.register_assert_rewrite(*(f"automl.conformance.{suite}" for suite in _GROUPS))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("automl").addoption(
        "--automl-conformance",
        action="store_true",
        help="also test what every extension of automl that a package installs must hold",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add the suites of what is installed to what is collected.

    Raises:
        pytest.UsageError: no installed package has an extension.
    """
    if not config.getoption("--automl-conformance"):
        return
    found = [suite for suite, group in _GROUPS.items() if entry_points(group=group)]
    if not found:
        groups = ", ".join(_GROUPS.values())
        raise pytest.UsageError(f"no installed package has an entry point of {groups}")
    config.args += [str(Path(__file__).parent / f"{suite}.py") for suite in found]
