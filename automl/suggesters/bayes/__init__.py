"""Bayesian optimisation: the default suggester. `policy` lists its rules on one page."""

from .suggester import BayesSuggester

__all__ = ["BayesSuggester"]
