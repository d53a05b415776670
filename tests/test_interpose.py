import mlx.core as mx
import mlx.nn as nn
import pytest

from mirror_mlx.interpose import interpose, release


def adding(amount):
    return lambda module, call, x: call(x) + amount


@pytest.mark.parametrize("first_out", [0, 1])
def test_handlers_come_and_go_in_any_order(first_out):
    layer = nn.Linear(2, 2)
    x = mx.ones((1, 2))
    plain, handlers = layer(x), [adding(1.0), adding(10.0)]
    for handler in handlers:
        interpose(layer, handler)
    assert mx.allclose(layer(x), plain + 11)
    assert isinstance(layer, nn.Linear)
    assert set(layer.parameters()) == {"weight", "bias"}
    release(layer, handlers[first_out])
    assert mx.allclose(layer(x), plain + [10.0, 1.0][first_out])
    release(layer, handlers[1 - first_out])
    assert type(layer) is nn.Linear
    release(layer, handlers[0])
    assert mx.array_equal(layer(x), plain)
