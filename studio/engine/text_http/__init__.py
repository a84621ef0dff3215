"""Text from another server: one HTTP client for all that speak OpenAI's chat completions."""
