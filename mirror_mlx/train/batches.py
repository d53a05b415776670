"""The order of training: samples packed into full rows, rows into batches, all of it a function of (seed, epoch)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mirror_mlx.errors import DataError
from mirror_mlx.train.tokenizer import Sample

SHORTEST = 64
"""Rows are never shortened below this many tokens."""


@dataclass(frozen=True)
class Batch:
    """Rows one token longer than their length L, since each position predicts the next.

    `ids`: (rows, L + 1) int32. `weights`: (rows, L) float32 and `answer`: (rows, L) bool, both of the predicted token.
    `numbers`: (rows,), which rows these are, where they are always the same (`FixedBatches`).
    """

    ids: np.ndarray
    weights: np.ndarray
    answer: np.ndarray
    numbers: np.ndarray | None = None

    @property
    def tokens(self) -> int:
        """How many predictions the batch makes."""
        return int(self.weights.size)


class Batches:
    """Endless batches of `batch_size * max_seq_length` tokens.

    A row begins with the beginning of a sample, continues with more samples (several conversations in a row read as
    turns of one) and is cut when it is full. Its length is `max_seq_length`, a half or a quarter of it, with more
    rows to a batch in proportion: so that a first turn, and a late one, are both learnt. Every epoch shuffles anew.
    """

    def __init__(self, samples: Sequence[Sample], batch_size: int, max_seq_length: int, seed: int) -> None:
        self.samples = samples
        self.batch_size = batch_size
        self.lengths = [max_seq_length >> shift for shift in range(3)]
        self.lengths = self.lengths[:1] + [length for length in self.lengths[1:] if length >= SHORTEST]
        self.seed = seed
        if not self.epoch(0):
            held = sum(len(sample.ids) for sample in samples)
            raise DataError(
                f"the data hold {held} tokens, too few for a batch of {batch_size} x {max_seq_length}: "
                "add data, or lower --batch-size or --max-seq-length"
            )

    def epoch(self, number: int) -> list[Batch]:
        """The batches of pass `number` over the data, in order; the same whenever it is asked."""
        random = np.random.default_rng([self.seed, number])
        order = random.permutation(len(self.samples))
        batches: list[Batch] = []
        for shift, part in enumerate(np.array_split(order, len(self.lengths))):
            rows = pack([self.samples[place] for place in part], self.lengths[shift])
            batches.extend(stack(rows, self.batch_size << shift))
        return [batches[place] for place in random.permutation(len(batches))]

    def after(self, epoch: int, place: int) -> Iterator[tuple[int, int, Batch]]:
        """Batches from `place` in `epoch` on, each with the position `(epoch, place)` that follows it."""
        return _after(self.epoch, epoch, place)


class FixedBatches:
    """Endless batches of rows that are packed once, so that something can be known of each; epochs shuffle them."""

    def __init__(self, samples: Sequence[Sample], batch_size: int, max_seq_length: int, seed: int) -> None:
        self.samples = samples
        self.batch_size = batch_size
        self.seed = seed
        order = np.random.default_rng(seed).permutation(len(samples))
        self.rows = pack([samples[place] for place in order], max_seq_length)
        if len(self.rows) < batch_size:
            held = sum(len(sample.ids) for sample in samples)
            raise DataError(
                f"the data hold {held} tokens, too few for a batch of {batch_size} x {max_seq_length}: "
                "add data, or lower --batch-size or --max-seq-length"
            )

    def epoch(self, number: int) -> list[Batch]:
        """The batches of pass `number`, in order; the rows left over differ from pass to pass."""
        order = np.random.default_rng([self.seed, number]).permutation(len(self.rows))
        count = len(order) // self.batch_size
        return [self.of(part) for part in order[: count * self.batch_size].reshape(count, -1)]

    def of(self, numbers: np.ndarray) -> Batch:
        """A batch of these rows."""
        (batch,) = stack([self.rows[number] for number in numbers], len(numbers))
        return replace(batch, numbers=numbers)

    def after(self, epoch: int, place: int) -> Iterator[tuple[int, int, Batch]]:
        """As `Batches.after`."""
        return _after(self.epoch, epoch, place)


def _after(batches_of: Callable[[int], list[Batch]], epoch: int, place: int) -> Iterator[tuple[int, int, Batch]]:
    while True:
        batches = batches_of(epoch)
        for at in range(place, len(batches)):
            yield epoch, at + 1, batches[at]
        epoch, place = epoch + 1, 0


def held_out(samples: Sequence[Sample], batch_size: int, max_seq_length: int, count: int) -> list[Batch]:
    """Up to `count` batches for validation, in file order; the rows at the end that fill no batch make a smaller one.

    Rows are half as long as the longest in training, or shorter if the samples would not fill one.
    """
    held = sum(len(sample.ids) for sample in samples)
    length = min(max(max_seq_length // 2, 1), held - 1)
    if length < 1:
        return []
    rows = pack(samples, length)
    rest = len(rows) % batch_size
    return (stack(rows, batch_size) + (stack(rows[-rest:], rest) if rest else []))[:count]


def pack(samples: Sequence[Sample], length: int) -> list[Sample]:
    """Join samples into rows of exactly `length` + 1 tokens: the last in a row is cut, an unfilled row is dropped."""
    rows: list[Sample] = []
    open_row: list[Sample] = []
    filled = 0
    for sample in samples:
        open_row.append(sample)
        filled += len(sample.ids)
        if filled > length:
            rows.append(_join(open_row, length + 1))
            open_row, filled = [], 0
    return rows


def stack(rows: Sequence[Sample], size: int) -> list[Batch]:
    """Batches of `size` rows each; rows left over are dropped."""
    batches: list[Batch] = []
    for start in range(0, len(rows) - size + 1, size):
        chosen = rows[start : start + size]
        batches.append(
            Batch(
                np.stack([row.ids for row in chosen]),
                np.stack([row.weights[1:] for row in chosen]),
                np.stack([row.answer[1:] for row in chosen]),
            )
        )
    return batches


def _join(samples: Sequence[Sample], length: int) -> Sample:
    ids, weights, answer = (
        np.concatenate([getattr(sample, name) for sample in samples])[:length] for name in ("ids", "weights", "answer")
    )
    return Sample(ids, weights, answer)
