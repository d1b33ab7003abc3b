"""The parts of a running collector, and what `hyperscout status` shows of them."""
