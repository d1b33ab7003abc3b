"""The `hyperscout` command: `main` finds the sub-command, and each sub-command is a module."""
