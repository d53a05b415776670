"""Every cache class: rows written and rolled back leave the cache as if they had never been."""

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

from mirror_mlx.rollback import Checkpoint, can_cut, can_rewind, cloned, cut, prepared, stepwise

CLASSES = {
    "plain": KVCache,
    "concatenate": ConcatenateKVCache,
    "quantized": lambda: QuantizedKVCache(group_size=32, bits=8),
    "rotating": lambda: RotatingKVCache(max_size=8),
    "rotating, first kept": lambda: RotatingKVCache(max_size=8, keep=2),
    "chunked": lambda: ChunkedKVCache(8),
    "list": lambda: CacheList(KVCache(), RotatingKVCache(max_size=8)),
}


def rows(start, count):
    """Keys that say which position they are of."""
    x = mx.arange(start, start + count, dtype=mx.float32)[None, None, :, None]
    return mx.broadcast_to(x, (1, 1, count, 32))


def write(entry, start, count):
    members = entry.caches if isinstance(entry, CacheList) else [entry]
    seen = []
    for member in members:
        if isinstance(member, ChunkedKVCache):
            member.maybe_trim_front()
        mask = member.make_mask(count) if isinstance(member, RotatingKVCache) else None
        keys, _ = member.update_and_fetch(rows(start, count), rows(start, count))
        keys = mx.dequantize(*keys, group_size=32, bits=8) if isinstance(keys, tuple) else keys
        held = [round(x) for x in keys[0, 0, :, 0].tolist()]
        for i in range(count):
            if isinstance(mask, mx.array):
                seen.append(sorted(p for p, visible in zip(held, mask[i].tolist(), strict=True) if visible))
            elif count == 1:
                seen.append(sorted(held))
            else:
                seen.append(sorted(p for p in held if p <= start + i))
    return seen


@pytest.mark.parametrize("name", CLASSES)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5)), min_size=1, max_size=12), st.integers(1, 12))
def test_rows_see_the_same_positions_with_and_without_rejected_ones(name, steps, prompt):
    spoiled, plain = prepared([CLASSES[name]()]), prepared([CLASSES[name]()])
    position = prompt
    for cache in (spoiled, plain):
        write(cache[0], 0, prompt)
    for accepted, rejected in steps:
        count = accepted + rejected
        with stepwise(spoiled):
            seen = write(spoiled[0], position, count)
        assert can_cut(spoiled[0])
        cut(spoiled[0], rejected)
        members = len(getattr(spoiled[0], "caches", [0]))
        kept = [seen[m * count + i] for m in range(members) for i in range(accepted)]
        one_by_one = [write(plain[0], position + i, 1) for i in range(accepted)]
        expected = [step[m] for m in range(members) for step in one_by_one]
        if "chunked" in name:  # the mask of a chunk is the model's; compare what is held, up to the chunk's length
            kept, expected = [k[-8:] for k in kept], [e[-8:] for e in expected]
        assert kept == expected
        position += accepted


def test_rejected_rows_of_a_full_rotating_cache_are_gone():
    """What mlx-lm's own trim silently does not do."""
    entry = prepared([RotatingKVCache(max_size=4)])[0]
    write(entry, 0, 6)
    write(entry, 6, 3)
    cut(entry, 2)
    assert write(entry, 7, 1) == [[4, 5, 6, 7]]


@given(st.integers(1, 5), st.integers(1, 5))
def test_a_checkpoint_restores_recurrent_state_and_cuts_the_rest(first, second):
    state, keys = ArraysCache(2), KVCache()
    state[0], state[1] = mx.array([1.0]), mx.array([[2.0]])
    write(keys, 0, 3)
    checkpoint = Checkpoint([state, keys])
    for count in (first, second):
        state[0] = state[0] + 1
        state[1][0, 0] = 9
        write(keys, 3, count)
        checkpoint.restore([state, keys], count)
        assert state[0].item() == 1
        assert state[1].item() == 2
        assert keys.offset == 3


def test_a_clone_is_independent_of_its_original():
    original = [KVCache(), ArraysCache(1)]
    write(original[0], 0, 3)
    original[1][0] = mx.array([1.0])
    twin = cloned(original)
    write(twin[0], 3, 2)
    twin[1][0] = mx.array([5.0])
    assert original[0].offset == 3
    assert original[1][0].item() == 1
    assert write(original[0], 3, 1) == [[0, 1, 2, 3]]


def test_only_what_still_holds_its_history_can_be_rewound():
    full, young = RotatingKVCache(max_size=4), RotatingKVCache(max_size=40)
    write(full, 0, 6)
    write(young, 0, 6)
    assert not can_rewind(full, 2)
    assert can_rewind(young, 2)
    assert not can_rewind(ArraysCache(1), 1)
    assert not can_cut(CacheList(KVCache(), ArraysCache(1)))
