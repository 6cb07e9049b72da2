"""Bayesian hyperparameter optimisation: which trial is run next."""
