"""The acquisition: terms that add up in log space. `acquisition` composes them."""
