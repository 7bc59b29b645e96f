"""The commands of the command line, by what they are about. `accord.cli` puts them together."""
