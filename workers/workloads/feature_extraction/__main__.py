"""Training from a shell: `python -m workers.workloads.feature_extraction --help`."""

from __future__ import annotations

from workers.standalone import main

if __name__ == "__main__":
    raise SystemExit(main("feature_extraction"))
