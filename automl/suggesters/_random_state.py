"""Peers draw from global random generators. These are seeded for a call and then restored."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def seeded_globally(seed: int) -> Iterator[None]:
    """Seed `random`, numpy and torch, use one thread in torch, and restore all of it afterwards."""
    import torch

    state = random.getstate()
    numpy_state = np.random.get_state()
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            torch.set_num_threads(1)
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
        torch.set_num_threads(threads)
