"""The controller: the loop that decides what runs next and records what happened."""
