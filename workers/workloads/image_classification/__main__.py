"""Training from a shell: `python -m workers.workloads.image_classification --help`."""

from __future__ import annotations

from workers.standalone import main

if __name__ == "__main__":
    raise SystemExit(main("image_classification"))
