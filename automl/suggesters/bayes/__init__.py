"""Bayesian optimisation: the default suggester."""

from .suggester import BayesSuggester

__all__ = ["BayesSuggester"]
