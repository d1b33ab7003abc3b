"""The stream to the collector: routes to collectors, sessions and reconnects."""
