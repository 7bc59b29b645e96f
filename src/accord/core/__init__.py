"""Code that all other packages use: typed settings, registries, files, random numbers, errors."""
