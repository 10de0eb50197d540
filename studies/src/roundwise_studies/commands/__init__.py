"""The commands of the laboratory, which `roundwise` has where this package is installed."""
