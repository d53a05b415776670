"""Prompt lookup: what followed the last time the text ran like this."""

from collections.abc import Sequence

from mirror_mlx.errors import UsageError


class PromptLookup:
    """Prompt lookup decoding (Saxena 2023): the text itself is the draft.

    The longest of the n-grams that end the text (n = `max_ngram` … `min_ngram`) that occurred before is looked up,
    its most recent occurrence taken, and what came after it proposed. Where the copy reaches the end of the text it
    goes on with what it has just proposed, so that a period goes on as a period.

    A dictionary holds the last place after every n-gram: `propose` costs O(max_ngram) for each token since the last
    time and O(max_ngram + length), however long the text; `extend` next to nothing. About 100 bytes a token and n.

    >>> lookup = PromptLookup()
    >>> lookup.begin([1, 2, 3, 4, 5, 1, 2])
    >>> lookup.propose(4)
    [3, 4, 5, 1]
    """

    name = "lookup"
    wants = 0

    def __init__(self, max_ngram: int = 3, min_ngram: int = 1) -> None:
        """Raises UsageError unless 1 ≤ min_ngram ≤ max_ngram."""
        if not 1 <= min_ngram <= max_ngram:
            raise UsageError(f"min_ngram is {min_ngram} and max_ngram {max_ngram}: they must be 1 ≤ min ≤ max")
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._text: list[int] = []
        self._known = 0  # of its tokens
        self._after: dict[tuple[int, ...], int] = {}

    def begin(self, tokens: Sequence[int]) -> None:
        self._text, self._known, self._after = [], 0, {}
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        self._text += map(int, tokens)

    def _catch_up(self) -> None:
        known, text = self._known, self._text
        self._known = len(text)
        for n in self._sizes:
            # Without the n-gram that ends the text: nothing is known to follow it, and it would find itself.
            first = max(known - n, 0)
            piece = text[first:-1]
            ngrams = zip(*(piece[i:] for i in range(n)), strict=False)
            self._after.update(zip(ngrams, range(first + n, len(text)), strict=False))

    def learn(self, rows: Sequence[int], likely: Sequence[Sequence[int]]) -> None:
        pass

    def propose(self, length: int) -> list[int]:
        self._catch_up()
        for n in self._sizes:
            place = self._after.get(tuple(self._text[-n:])) if len(self._text) > n else None
            if place is not None:
                return self._copied(place, length)
        return []

    def _copied(self, place: int, length: int) -> list[int]:
        copy = self._text[place : place + max(length, 0)]
        while len(copy) < length:
            copy += copy[: length - len(copy)]
        return copy
