"""Publishes Slurm's topology files."""
