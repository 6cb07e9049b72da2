"""What every extension promises, as tests: a plugin of pytest runs them for installed packages."""
