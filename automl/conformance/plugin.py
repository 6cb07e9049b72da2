"""The plugin of pytest: `pytest --automl-conformance` tests the extensions that are installed.

It is loaded in each run of pytest beside automl, so it imports nothing of automl itself.
"""

from pathlib import Path

import pytest

_SUITES = ("suggesters", "stoppers")

pytest.register_assert_rewrite(*(f"automl.conformance.{suite}" for suite in _SUITES))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("automl").addoption(
        "--automl-conformance",
        action="store_true",
        help="also test what every suggester and stopper of an installed package must hold",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add the suites to what is collected."""
    if config.getoption("--automl-conformance"):
        config.args += [str(Path(__file__).parent / f"{suite}.py") for suite in _SUITES]
