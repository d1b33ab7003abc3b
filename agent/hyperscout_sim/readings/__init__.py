"""Writes a fabric as its readings: sweeps, frames, walks, sysfs and responses of managers."""
