"""The front of several goals and its improvement."""

from __future__ import annotations

import numpy as np
import torch

from automl.suggesters.bayes.acquisition.hypervolume import expected_hypervolume, reference_point
from automl.suggesters.bayes.model.incumbents import front


def test_a_short_front_gains_more_by_a_longer_end_than_by_another_point_of_it():
    losses = np.array([[0.0, 1.0], [0.1, 0.9], [1.5, 1.4], [0.9, 1.8]])
    rows = front(losses)
    assert rows.tolist() == [0, 1]
    reference = reference_point(losses, rows)
    assert (reference >= losses.max(0)).all()
    candidates = torch.tensor([[0.05, 0.95], [1.0, 0.2]])
    moments = [(candidates[None, :, g], torch.full((1, 2), 1e-3)) for g in range(2)]
    inside, beyond = expected_hypervolume(
        torch.from_numpy(losses[rows]), torch.from_numpy(reference), moments
    )
    assert beyond > 100 * inside > 0
    single = reference_point(losses[:1], np.array([0]))
    assert (single > losses[0]).all(), "of one trial too"
