"""The subcommands of `roundwise`, one module each; `roundwise.cli` puts them together."""
