"""From evidence to published generations."""
