"""The attacks of `chaos.py`, one file a subject; `frame.py` says what an attack is."""
