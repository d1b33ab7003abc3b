"""Reads the output of the tools for Huawei Ascend NPUs."""
