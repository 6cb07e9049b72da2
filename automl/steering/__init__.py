"""What a person tells a sweep: knobs pinned or narrowed while it runs, and beliefs about good values."""
