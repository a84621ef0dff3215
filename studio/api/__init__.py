"""The HTTP API. Speaks to `studio.jobs` alone."""
