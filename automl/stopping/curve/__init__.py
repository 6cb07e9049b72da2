"""Freeze-thaw scheduling by a Bayesian model of learning curves."""

from .stopper import CurveStopper

__all__ = ["CurveStopper"]
