"""Slurm's topology files."""
