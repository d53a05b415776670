"""Where the rows of one pass go: all branches flattened, mains first, streams after. Host integers only.

Both segments keep one key-value slot for every main ever computed in the step, the trunk's first. A pass writes its
mains to the next slots of both, and its streams behind them in the second segment, where the next pass overwrites
them. A row sees the trunk up to where its branch leaves it, its branch's own mains, the mains fed before it in this
pass, and, if it is stream j, streams 1 … j of its main. No prefix is copied: masks keep the branches apart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from mirror_mlx.messages import Key


@dataclass(slots=True)
class Feed:
    """Tokens to be computed on one branch.

    trunk    how many trunk slots the branch sees; a token's position is `trunk + len(slots) + place`
    slots    the slots of the branch's own earlier mains
    tokens   what is fed now
    streams  which of these rows carry lookahead streams
    limit    and at most how many each; None: as many as the pass has
    """

    trunk: int
    slots: list[int]
    tokens: Sequence[int]
    streams: Literal["none", "last", "every"] = "last"
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """The rows one segment computes.

    positions  [R]            for the rotation
    mask       [R, used + R]  which slots a row sees
    """

    positions: np.ndarray
    mask: np.ndarray


@dataclass(frozen=True, slots=True)
class Layout:
    """One pass: `first` and `second` are the two segments' rows.

    tokens   [R₁]   of the first segment's rows, the mains
    source   [R₂]   the main that each row of the second segment starts from; the first R₁ are the mains themselves
    stream   [R₂]   0 for a main, j for stream j
    mains    [F]    for each feed, the rows of its tokens
    streams  [F][t] for each feed and each of its tokens, the rows of its streams, j = 1 … s; empty where it has none
    """

    used: int
    tokens: list[int]
    first: Columns
    second: Columns
    source: np.ndarray
    stream: np.ndarray
    mains: list[range] = field(default_factory=list)
    streams: list[list[range]] = field(default_factory=list)

    def slots(self, feed: int) -> list[int]:
        """The slots that a feed's mains are written to."""
        return [self.used + row for row in self.mains[feed]]


def lay_out(feeds: Sequence[Feed], used: int, count: int) -> Layout:
    """The layout of one pass over `feeds`, after `used` slots, with `count` streams to a row that carries them.

    >>> plan = lay_out([Feed(2, [], [7]), Feed(1, [], [8, 9])], used=3, count=2)
    >>> plan.tokens, plan.source.tolist(), plan.stream.tolist(), plan.second.positions.tolist()
    ([7, 8, 9], [0, 1, 2, 0, 0, 2, 2], [0, 0, 0, 1, 2, 1, 2], [2, 1, 2, 3, 4, 3, 4])
    """
    mains: list[range] = []
    start = 0
    for feed in feeds:
        mains.append(range(start, start + len(feed.tokens)))
        start += len(feed.tokens)
    carried = [_carried(feed, count) for feed in feeds]
    columns = start + sum(map(sum, carried))
    mask = np.zeros((columns, used + columns), bool)
    positions = np.zeros(columns, np.int32)
    source, stream = np.arange(columns, dtype=np.int32), np.zeros(columns, np.int32)
    streams: list[list[range]] = []
    after = start
    for feed, rows, counts in zip(feeds, mains, carried, strict=True):
        mask[rows.start : rows.stop, : feed.trunk] = True
        mask[rows.start : rows.stop, feed.slots] = True
        mask[rows.start : rows.stop, used + rows.start : used + rows.stop] = np.tri(len(rows), dtype=bool)
        positions[rows.start : rows.stop] = feed.trunk + len(feed.slots) + np.arange(len(rows))
        placed = []
        for row, streams_ in zip(rows, counts, strict=True):
            own = range(after, after + streams_)
            mask[own.start : own.stop] = mask[row]
            mask[own.start : own.stop, used + own.start : used + own.stop] = np.tri(len(own), dtype=bool)
            source[own.start : own.stop] = row
            stream[own.start : own.stop] = np.arange(1, len(own) + 1)
            positions[own.start : own.stop] = positions[row] + np.arange(1, len(own) + 1)
            placed.append(own)
            after = own.stop
        streams.append(placed)
    return Layout(
        used, [token for feed in feeds for token in feed.tokens],
        Columns(positions[:start], mask[:start, : used + start]), Columns(positions, mask),
        source, stream, mains, streams,
    )  # fmt: skip


def packed(
    feeds: Sequence[tuple[Key | None, Feed]], count: int, columns: tuple[int, int] | None
) -> Iterator[list[tuple[Key | None, Feed]]]:
    """Feeds, each with the root it is of, in groups that fit a pass of so many `columns` (first segment, second), in
    order. Raises ValueError where one alone does not.

    >>> feeds = [(None, Feed(3, [], [7, 8], "none")), ((0, 1), Feed(4, [], [9])), ((0, 2), Feed(4, [], [9]))]
    >>> [[key for key, _ in group] for group in packed(feeds, 3, (4, 8))]
    [[None, (0, 1)], [(0, 2)]]
    """
    group: list[tuple[Key | None, Feed]] = []
    mains = rows = 0
    for key, feed in feeds:
        own = len(feed.tokens)
        more = own + sum(_carried(feed, count))
        if columns is not None and (own > columns[0] or more > columns[1]):
            raise ValueError(f"a branch needs {own} and {more} columns, and a pass has {columns[0]} and {columns[1]}")
        if group and columns is not None and (mains + own > columns[0] or rows + more > columns[1]):
            yield group
            group, mains, rows = [], 0, 0
        group.append((key, feed))
        mains, rows = mains + own, rows + more
    if group:
        yield group


def _carried(feed: Feed, count: int) -> list[int]:
    """How many streams each of a feed's rows carries."""
    last, own = len(feed.tokens) - 1, count if feed.limit is None else min(count, feed.limit)
    return [own if feed.streams == "every" or (feed.streams == "last" and i == last) else 0 for i in range(last + 1)]
