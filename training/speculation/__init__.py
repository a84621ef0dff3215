"""How the draft head of the embedded text model is made: on the model's own texts."""
