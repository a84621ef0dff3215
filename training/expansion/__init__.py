"""How the adapter that expands prompts was made: words, grammar, pairs, training, reading."""
