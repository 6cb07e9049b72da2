"""A training loop of the user's own under a trial's settings: `trial.prepare`, `automl.knobs`."""
