"""The same examples on every run and no deadlines, so that a busy machine makes no difference.

`--hypothesis-profile=default` looks for new ones.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.load_profile("steady")
