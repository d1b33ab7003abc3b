"""Commands that run, check and set up parts of hyperscout."""
