"""The stream to the collector: credentials, targets, sessions and reconnects."""
