"""Under which heading `automl --help` lists an action, in this order."""

from typing import Final

EVERY_DAY: Final = "Every day"
CLOSER: Final = "Look closer"
STEER: Final = "Steer a sweep"
TAKE_OUT: Final = "Train the best again, use it elsewhere"
AGENTS: Final = "Run trials by programs of your own"
PREPARE: Final = "Before a sweep"
CARE: Final = "Care for a store"

HEADINGS: Final = (EVERY_DAY, CLOSER, STEER, TAKE_OUT, AGENTS, PREPARE, CARE)
