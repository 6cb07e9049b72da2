"""Suggesters propose configurations. Each module is one suggester; `bayes` is the default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.plugins import Registry

if TYPE_CHECKING:
    from .base import Suggester

SUGGESTERS: Registry[Suggester] = Registry(
    "suggester",
    "automl.suggesters",
    "automl.suggesters",
    "automl.suggesters.base:Suggester",
    others=("belief", "domain", "proposer", "queue", "user_prior"),
)
