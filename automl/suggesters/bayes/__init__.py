"""Bayesian optimisation on GPyTorch and BoTorch: the default suggester. Begin with `suggester`."""

from .suggester import BayesSuggester

__all__ = ["BayesSuggester"]
