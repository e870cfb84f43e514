"""What `bilm demo` needs besides the other subcommands: its text, and words worth showing."""
