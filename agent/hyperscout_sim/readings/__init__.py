"""A fabric as its readings: sweeps, frames, walks, sysfs and managers' answers."""
