"""Freeze-thaw scheduling by a Bayesian model of learning curves."""

from __future__ import annotations

from .stopper import CurveStopper

__all__ = ["CurveStopper"]
