"""Groups the components of a running collector and builds the answer of `hyperscout status`."""
