"""Lists the parts of a running collector and builds the answer of `hyperscout status`."""
