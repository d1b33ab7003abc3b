"""Reads the facts about AMD GPUs from files of Linux."""
