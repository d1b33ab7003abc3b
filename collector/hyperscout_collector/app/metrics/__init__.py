"""/metrics of the collector: one module for each thing that its figures are about."""
