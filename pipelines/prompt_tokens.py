"""Where a prompt is cut that has more tokens than the model reads."""


def lost_words(prompt: str, cut_at: int) -> str:
    """What is not read of a prompt whose last token that is read ends before `cut_at`.

    A word that was read in part counts as lost: half a word helps nobody to find the place.
    """
    word_at = max(prompt.rfind(" ", 0, cut_at + 1), prompt.rfind("\n", 0, cut_at + 1)) + 1
    return prompt[word_at:].strip()
