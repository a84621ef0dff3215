"""Short ideas turned into prompts worth rendering, by a small language model with a LoRA."""
