"""Models, pictures and steps.

Nothing is imported here: `specs`, `schedule` and `requests` stay free of torch.
"""
