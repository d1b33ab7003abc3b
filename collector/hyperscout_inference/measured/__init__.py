"""What measured round trips and bandwidths say of hosts, paths, domains and tiers that are slow."""
