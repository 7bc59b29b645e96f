"""What every room uses: typed settings, registries, files, named random numbers, errors."""
