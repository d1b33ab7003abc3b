"""Find slow hosts, paths, domains and tiers from measured round trips and bandwidths."""
