"""The promises of every suggester of the folder: the suite that plugins run, too."""

from __future__ import annotations

import os

import pytest

from automl.conformance.suggesters import *  # noqa: F403
from automl.suggesters import SUGGESTERS

IN_EVERY_RUN = ("test_legal_and_new", "test_mutates_nothing", "test_small_space_runs_out")
SLOW = {"ax", "optuna-gp"}  # seconds a suggestion: fewer calls, and not every case


@pytest.fixture(params=SUGGESTERS.names())
def name(request: pytest.FixtureRequest) -> str:
    rest = not request.node.name.startswith(IN_EVERY_RUN)
    if request.param in SLOW and rest and "AUTOML_TEST_ALL" not in os.environ:
        pytest.skip("takes minutes: make test-all")
    return str(request.param)


@pytest.fixture
def is_slow(name: str) -> bool:
    return name in SLOW
