"""Where ranks run: Ray actors, local processes, and watching over them."""
