from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="session", autouse=True)
def frozen_heap() -> None:
    """Each trial collects garbage before it measures memory; what torch has imported need not be looked at again."""
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
