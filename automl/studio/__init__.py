"""The web application: every sweep of a store in a browser. `automl studio` serves it."""
