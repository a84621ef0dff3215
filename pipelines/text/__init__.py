"""Language models: an engine that decodes many requests together, and speculates."""
