"""Implements HTTP/1.1 connections, problem documents, and the port for health and metrics."""
