from __future__ import annotations

import gc
from pathlib import Path

import pytest

from automl.ledger import Ledger


@pytest.fixture(scope="session", autouse=True)
def frozen_heap() -> None:
    """Each trial collects garbage before it measures memory; do not scan torch's modules again."""
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path, create=True)
