"""A draft around another one, for instruments that look on."""

from collections.abc import Mapping, Sequence
from typing import Any

from mirror_mlx.draft.protocol import Confident, Draft, Guessing, Joined, Lawful, joining, streaming, width_of
from mirror_mlx.messages import Candidates, Key, Root
from mirror_mlx.sampling import Sampling


class Wrapped:
    """Does what the inner draft does. A subclass says what it does besides."""

    def __init__(self, inner: Draft) -> None:
        self._draft = inner
        self.max_roots = inner.max_roots

    @property
    def width(self) -> int | None:
        return width_of(self._draft)

    @property
    def confidences(self) -> Mapping[Key, Sequence[float]]:
        return self._draft.confidences if isinstance(self._draft, Confident) else {}

    @property
    def laws(self) -> Mapping[Key, Sequence[Any]]:
        return self._draft.laws if isinstance(self._draft, Lawful) else {}

    @property
    def guesses(self) -> Mapping[Key, Sequence[int]]:
        return self._draft.guesses if isinstance(self._draft, Guessing) else {}

    @property
    def trained_streams(self) -> int | None:
        found = streaming(self._draft)
        return None if found is None else found.trained_streams

    def use(self, streams: int | None, *, exact: bool = False, length: int | None = None) -> None:
        if (found := streaming(self._draft)) is not None:
            found.use(streams, exact=exact, length=length)

    def begin(self, sampling: Sampling) -> None:
        self._draft.begin(sampling)

    def prefill(self, tokens: Sequence[int]) -> None:
        self._draft.prefill(tokens)

    def glue(self, tokens: Sequence[int], candidates: int) -> Candidates | None:
        return self._draft.glue(tokens, candidates)

    def joins(self, rows: int) -> bool:
        return joining(self._draft, rows) is not None

    def join(self, tokens: Sequence[int], candidates: int, root: Root, after: Sequence[int] = ()) -> Joined:
        found = joining(self._draft, len(tokens))
        assert found is not None
        return found.join(tokens, candidates, root, after)

    def expand(self, roots: Sequence[Root]) -> None:
        self._draft.expand(roots)

    def advance(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[int]]:
        return self._draft.advance(keys)

    def commit(self, rows: int) -> None:
        self._draft.commit(rows)

    def rewind(self, length: int) -> None:
        self._draft.rewind(length)

    def close(self) -> None:
        self._draft.close()
