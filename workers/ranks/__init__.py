"""The ranks of a trial: where they meet, and the process group that they make."""
