"""The page: layout apart from handlers; a handler only submits, watches and cancels."""
