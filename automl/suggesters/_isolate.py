"""Peers draw from global generators: seeded for the call, then put back."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Seed the generators of `random`, numpy and torch, one thread in torch; restore all of it afterwards."""
    import torch

    kept, kept_numpy, threads = random.getstate(), np.random.get_state(), torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            torch.set_num_threads(1)
            yield
    finally:
        random.setstate(kept)
        np.random.set_state(kept_numpy)
        torch.set_num_threads(threads)
