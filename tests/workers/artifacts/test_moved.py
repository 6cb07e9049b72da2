"""A trial that was moved to a machine that does not see its files."""

from __future__ import annotations

from pathlib import Path

from workers.artifacts.mirror import moved
from workers.context import Context
from workers.protocol import Assignment, open_log


def test_the_message_of_a_trial_says_that_it_was_moved_without_its_files(tmp_path: Path) -> None:
    def context(attempt: int) -> Context:
        one = Assignment("s", 0, attempt, {}, None, str(tmp_path), resume=attempt > 1)
        open_log(one, 0).close()
        return Context(one)

    assert "began anew: the files of its earlier attempts are not on" in moved(context(2))
    assert moved(context(1)) == ""
    assert moved(context(3)) == "", "attempt 2 ran here"
