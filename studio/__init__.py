"""The application: jobs, history, HTTP API and web page. Knows no tensors."""

__version__ = "0.1.0"
