"""Judge the sweeps of agents by the published cables: decide what of each sweep counts. Pure."""
