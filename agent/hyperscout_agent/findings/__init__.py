"""The probe interface, the scheduler that runs probes, and the store of their findings."""
