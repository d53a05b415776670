"""What a draft and its packages are put to, so that what they say can be compared.

A text is read in chunks; then steps as the runtime makes them: glue, the branches of several roots with their streams
for as many passes as a window takes, a rewind to what was accepted, until the slots are nearly full. Nothing in it
depends on what is said, so both are put to it one after the other, and need not be in memory together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import mlx.core as mx
import numpy as np

from mirror_mlx.draft.package.manifest import Manifest, Shapes
from mirror_mlx.draft.streaming import MlxSegments, StreamingModel
from mirror_mlx.draft.streaming.layout import Feed, Layout, lay_out, packed
from mirror_mlx.draft.streaming.predictions import Buckets
from mirror_mlx.messages import Key

ROOTS = 16
"""At most, and as many as the slots allow."""
PASSES = 4
"""At most, over the branches of a step."""


class Player(Protocol):
    """Who can be put to it: `PackageSegments`, and the draft itself as `Own`."""

    @property
    def used(self) -> int: ...

    def read(self, tokens: Sequence[int]) -> np.ndarray: ...

    def prefill(self, tokens: Sequence[int]) -> None: ...

    def run(self, layout: Layout, wanted: Sequence[int]) -> Buckets: ...

    def cut(self, length: int) -> None: ...

    def close(self) -> None: ...


@dataclass
class Said:
    """What was said. hidden: states at the end of the prompt's rows [R, C]. Of all rows of all passes: best, the
    likeliest token [N], buckets, the one it is in [N], and peaks, the largest logit of each bucket [N][K]."""

    hidden: np.ndarray
    best: list[int] = field(default_factory=list)
    buckets: list[int] = field(default_factory=list)
    peaks: list[np.ndarray] = field(default_factory=list)


def play(player: Player, manifest: Manifest, text: Sequence[int], *, to_the_end: bool = True, seed: int = 0) -> Said:
    """Put a player to the script, of the tokens of `text`, and close it. to_the_end: fill the slots, and make another
    step there."""
    shapes, window = manifest.shapes, manifest.num_draft_tokens + 1
    random = np.random.default_rng(seed)
    length = min(shapes.prefill + shapes.prefill // 2, shapes.context // 3)
    text = np.resize(text, length + 2 * window).tolist()
    roots = _roots(manifest, shapes.context - length - window)
    try:
        said = Said(player.read(text[:length]))
        for step in range(1 + to_the_end):
            if step:
                ahead = shapes.context - player.used - _needed(manifest, roots)
                player.prefill(np.resize(text, max(ahead, 0)).tolist())
            base, rows = player.used, text[length + step * window : length + (step + 1) * window]
            for layout in _layouts(rows, base, roots, shapes, player, random, text):
                found = player.run(layout, range(len(layout.source)))
                buckets = found.logits.argmax(-1)
                said.buckets += buckets.tolist()
                said.best += np.take_along_axis(found.ids, buckets[:, None], -1)[:, 0].tolist()
                said.peaks += list(np.array(found.logits, np.float32))
            player.cut(base + int(random.integers(0, len(rows))) + 1)
    finally:
        player.close()
    return said


def _passes(manifest: Manifest) -> int:
    return min(-(-manifest.num_draft_tokens // (1 + manifest.shapes.streams)), PASSES)


def _needed(manifest: Manifest, roots: int) -> int:
    """Slots that a step takes: its glue, its branches' mains, and one pass."""
    shapes = manifest.shapes
    mains = manifest.num_draft_tokens + 1 + roots * (1 + (_passes(manifest) - 1) * (1 + shapes.streams))
    return mains + max(shapes.first, shapes.second, shapes.prefill)


def _roots(manifest: Manifest, room: int) -> int:
    """The most for which a step fits into the slots that are left, at least one."""
    return next((roots for roots in range(ROOTS, 0, -1) if _needed(manifest, roots) <= room), 1)


def _layouts(
    rows: list[int], base: int, roots: int, shapes: Shapes, player: Player, random: np.random.Generator, text: list[int]
) -> Iterator[Layout]:
    """Glue, then the passes of so many branches that leave it at different rows, of tokens that occur in `text`. Each
    is laid out when it is asked for, since slots go by what has been computed."""
    yield lay_out([Feed(base, [], rows, "none")], player.used, 0)
    branches: dict[Key, Feed] = {}
    for number in range(roots):
        row = number % len(rows)
        branches[row, number] = Feed(base + row + 1, [], random.choice(text, 1).tolist())
    for _ in range(min(-(-(len(rows) - 1) // (1 + shapes.streams)), PASSES)):
        for group in packed(list(branches.items()), shapes.streams, (shapes.first, shapes.second)):
            layout = lay_out([feed for _, feed in group], player.used, shapes.streams)
            yield layout
            for place, (key, feed) in enumerate(group):
                assert key is not None
                slots = [*feed.slots, *layout.slots(place)]
                branches[key] = Feed(feed.trunk, slots, random.choice(text, 1 + shapes.streams).tolist())


class Own:
    """The MLX draft, saying what packages of these shapes would say: the best of each bucket."""

    def __init__(self, model: StreamingModel, shapes: Shapes) -> None:
        self._model, self._segments, self._buckets = model, MlxSegments(model), shapes.buckets
        ids = np.arange(shapes.head_size) if model.token_ids is None else np.array(model.token_ids)
        self._ids = np.append(ids, np.zeros(-len(ids) % shapes.buckets, ids.dtype)).reshape(-1, shapes.buckets)

    @property
    def used(self) -> int:
        return self._segments.used

    def read(self, tokens: Sequence[int]) -> np.ndarray:
        self._segments.prefill(tokens)
        mains, _ = self._model.hidden(mx.array([list(tokens)]), 0)
        return np.concatenate([np.array(track[0]) for track in mains], axis=-1)

    def prefill(self, tokens: Sequence[int]) -> None:
        self._segments.prefill(tokens)

    def run(self, layout: Layout, wanted: Sequence[int]) -> Buckets:
        logits = np.array(self._segments.run(layout, wanted).logits)
        padded = np.pad(logits, ((0, 0), (0, self._ids.size - logits.shape[1])), constant_values=-np.inf)
        dealt = padded.reshape(len(padded), *self._ids.shape)
        best = dealt.argmax(axis=1)
        peaks = np.take_along_axis(dealt, best[:, None], 1)[:, 0]
        return Buckets(self._ids[best, np.arange(self._buckets)], peaks, np.ones_like(peaks), np.zeros(0, np.int32))

    def cut(self, length: int) -> None:
        self._segments.cut(length)

    def close(self) -> None:
        self._segments.close()
