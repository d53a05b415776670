"""Taking rejected rows out of a model's caches, exactly, for every cache class of mlx-lm.

Two ways. *Cut*: keys and values of the last rows are dropped in place. *Restore*: what a recurrent state was before
the window cannot be computed from what it is after it, so a checkpoint is kept; the accepted tokens are then replayed
as a prefix of the next verify input, which costs no forward of its own. A model with any cache of the second kind
uses the second way for all of them.

mlx-lm's own `is_trimmable` is not relied on: a rotating cache says yes until its window has filled and then drops
nothing, and `ConcatenateKVCache.trim` leaves the rejected keys in place.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import (
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

Cache = list[Any]


class StepwiseRotatingKVCache(RotatingKVCache):
    """A rotating cache whose mask for several rows can show each row what it would see alone.

    mlx-lm's mask differs from that in two cases: for a cache that keeps its first tokens (`max_kv_size`) it hides
    them once the window has moved on, and a model may ask for a wider window than its cache holds (plamo3).
    """

    stepwise = False

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> Any:  # noqa: N803
        if not self.stepwise or N == 1:
            return super().make_mask(N, window_size=window_size, return_array=return_array)
        window = min(window_size or self.max_size, self.max_size)
        if not self.keep:
            return super().make_mask(N, window_size=window, return_array=return_array)
        before = min(self.max_size - 1, self.offset)
        row, slot = mx.arange(before, before + N)[:, None], mx.arange(before + N)[None]
        return (slot <= row) & ((slot < self.keep) | (row - slot < window - self.keep))


def prepared(cache: Cache) -> Cache:
    """A fresh cache from mlx-lm with its rotating members able to work stepwise."""
    for entry in _members(cache):
        if type(entry) is RotatingKVCache:
            entry.__class__ = StepwiseRotatingKVCache
    return cache


@contextmanager
def stepwise(cache: Cache) -> Iterator[None]:
    """A forward in here gives each of its rows what it would get alone."""
    rotating = [entry for entry in _members(cache) if type(entry) is StepwiseRotatingKVCache]
    for entry in rotating:
        entry.stepwise = True
    try:
        yield
    finally:
        for entry in rotating:
            entry.stepwise = False


def _members(cache: Cache) -> Iterator[Any]:
    for entry in cache:
        yield from _members(entry.caches) if type(entry) is CacheList else (entry,)


def can_cut(entry: Any) -> bool:
    """Whether the last rows of this cache can be dropped in place. Exact types: a subclass may keep more state."""
    if type(entry) is CacheList:
        return all(can_cut(member) for member in entry.caches)
    return type(entry) in _CUTS


def cut(entry: Any, rows: int) -> None:
    """Drop the last `rows` rows, all of which the last forward wrote (more than one of them, if rotating)."""
    if rows > 0:
        if type(entry) is CacheList:
            for member in entry.caches:
                cut(member, rows)
        elif not entry.empty():  # some models keep caches for layers that write none
            _CUTS[type(entry)](entry, rows)


def can_rewind(entry: Any, rows: int) -> bool:
    """Whether `rows` rows can be dropped that were written by any number of forwards."""
    if type(entry) is CacheList:
        return all(can_rewind(member, rows) for member in entry.caches)
    if isinstance(entry, RotatingKVCache):
        return entry.offset < entry.max_size  # nothing has been overwritten yet
    if type(entry) is ChunkedKVCache:
        return entry.start_position == 0
    return can_cut(entry)


def _cut_by_offset(entry: Any, rows: int) -> None:
    entry.offset -= rows


def _cut_keys(entry: Any, rows: int) -> None:
    entry.keys, entry.values = entry.keys[..., :-rows, :], entry.values[..., :-rows, :]
    entry.offset -= rows


def _cut_rotating(entry: RotatingKVCache, rows: int) -> None:
    # A forward of several rows leaves the buffer in temporal order, with the window's history before them: cut the
    # end off and both kinds of update go on as after a prompt of that length. Single rows are written in place, where
    # as long as nothing was overwritten the order is temporal too.
    keep = entry._idx - rows
    entry.keys, entry.values = entry.keys[..., :keep, :], entry.values[..., :keep, :]
    entry.offset -= rows
    entry._idx = keep


_CUTS: dict[type, Any] = {
    KVCache: _cut_by_offset,
    QuantizedKVCache: _cut_by_offset,
    ChunkedKVCache: _cut_by_offset,
    ConcatenateKVCache: _cut_keys,
    RotatingKVCache: _cut_rotating,
    StepwiseRotatingKVCache: _cut_rotating,
}


class Checkpoint:
    """The state of a cache before a forward, to go back to. Arrays are shared, not copied.

    Caches that can be cut are not held (a second reference to a key buffer would make every write copy it): they are
    cut by the rows written since.
    """

    def __init__(self, cache: Cache) -> None:
        self._entries = [None if can_cut(entry) else _clone_fields(entry) for entry in cache]

    def restore(self, cache: Cache, rows: int) -> None:
        """Put `cache` back to where it was `rows` rows ago. The checkpoint stays good."""
        for entry, fields in zip(cache, self._entries, strict=True):
            if fields is None:
                cut(entry, rows)
            else:
                entry.__dict__.clear()
                entry.__dict__.update({name: _clone(value) for name, value in fields.items()})


def cloned(cache: Cache) -> Cache:
    """A second cache in the same state. Arrays are shared until one of the two is written."""
    return [_clone(entry) for entry in cache]


def _clone_fields(entry: Any) -> dict[str, Any]:
    return {name: _clone(value) for name, value in vars(entry).items()}


def _clone(value: Any) -> Any:
    """A copy that later writes to `value` do not reach. For arrays a new handle on the same data: writing to an
    array by index moves its handle to new data."""
    if isinstance(value, mx.array):
        return copy.copy(value)
    if isinstance(value, list | tuple):
        return type(value)(_clone(item) for item in value)
    if isinstance(value, dict):
        return {key: _clone(item) for key, item in value.items()}
    if hasattr(value, "__dict__") and not callable(value):
        twin = copy.copy(value)
        twin.__dict__.update(_clone_fields(value))
        return twin
    return value
