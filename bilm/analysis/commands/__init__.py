"""The subcommands of `bilm` that look at vectors."""
