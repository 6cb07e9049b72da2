"""The `__main__` of processes that multiprocessing spawns inside a trial: the script's own names.

Multiprocessing would run the script again, which begins a sweep if it has no
`if __name__ == "__main__"`.
"""

from workers.runtime.pickling import open_shared

globals().update(open_shared().names)
