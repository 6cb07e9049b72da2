"""The promises of every workload of the folder: the suite that plugins run, too."""

from __future__ import annotations

import pytest

from automl.conformance.workloads import *  # noqa: F403
from workers.workloads import WORKLOADS


@pytest.fixture(params=WORKLOADS.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)
