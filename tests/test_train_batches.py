import itertools

import numpy as np
import pytest

from mirror_mlx.errors import DataError
from mirror_mlx.train.batches import Batches, held_out, pack, stack
from mirror_mlx.train.tokenizer import Sample


def sample(first: int, length: int) -> Sample:
    ids = np.arange(first, first + length, dtype=np.int32)
    return Sample(ids, (ids % 2).astype(np.float32), ids % 2 == 1)


SAMPLES = [sample(1000 * n, 20 + n) for n in range(60)]


def test_rows_are_full_and_begin_with_a_sample() -> None:
    rows = pack([sample(0, 3), sample(100, 4), sample(200, 5)], 4)
    assert [row.ids.tolist() for row in rows] == [[0, 1, 2, 100, 101], [200, 201, 202, 203, 204]]


def test_a_weight_belongs_to_the_token_predicted() -> None:
    (batch,) = stack(pack([sample(0, 5), sample(100, 5), sample(200, 5)], 4), 2)
    assert batch.ids.shape == (2, 5)
    assert np.array_equal(batch.weights, batch.ids[:, 1:] % 2)
    assert np.array_equal(batch.answer, batch.weights == 1)
    assert batch.tokens == 8


def test_every_batch_has_the_same_number_of_tokens() -> None:
    shapes = {batch.ids.shape for batch in Batches(SAMPLES, 1, 256, 0).epoch(0)}
    assert shapes == {(1, 257), (2, 129), (4, 65)}


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    def ids(seed: int, epoch: int) -> list[list[int]]:
        return [batch.ids.ravel().tolist() for batch in Batches(SAMPLES, 1, 64, seed).epoch(epoch)]

    assert ids(3, 2) == ids(3, 2)
    assert ids(3, 2) != ids(3, 1)
    assert ids(3, 2) != ids(4, 2)


def test_a_position_is_enough_to_go_on_from() -> None:
    batches = Batches(SAMPLES, 1, 64, 0)
    straight = list(itertools.islice(batches.after(0, 0), 40))
    assert straight[-1][0] > 0, "the walk should cross an epoch"
    for epoch, place, _ in (straight[0], straight[30]):
        done = next(n for n, step in enumerate(straight) if step[:2] == (epoch, place))
        for (_, _, one), (_, _, other) in zip(straight[done + 1 :], batches.after(epoch, place), strict=False):
            assert np.array_equal(one.ids, other.ids)


def test_too_little_data_is_refused() -> None:
    with pytest.raises(DataError, match="the data hold 20 tokens, too few for a batch of 1 x 64"):
        Batches(SAMPLES[:1], 1, 64, 0)


def test_validation_takes_what_there_is() -> None:
    assert held_out([], 2, 64, 5) == []
    (small,) = held_out(SAMPLES[:1], 2, 64, 5)
    assert small.ids.shape == (1, 20)
    shapes = [batch.ids.shape for batch in held_out(SAMPLES[:5], 2, 64, 5)]
    assert shapes == [(2, 33)]
    assert len(held_out(SAMPLES, 2, 64, 3)) == 3
