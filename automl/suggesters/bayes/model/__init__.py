"""The surrogates: Gaussian processes, their features, transforms and fits."""
