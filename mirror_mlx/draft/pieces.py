"""Small submissions for a draft that shares the CPU backend with the target.

MLX allows ten CPU tasks in flight over all streams together: a draft that queues a whole forward makes the target wait
to submit (docs/log.md). On the CPU every part of a layer (attention, MLP, norms) is evaluated as it returns; elsewhere
nothing changes. Smaller pieces make a pass take up to twice as long, and the target no faster.
"""

from collections.abc import Iterable
from threading import get_ident
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mirror_mlx.interpose import interpose, release


class Pieces:
    """A context in which this thread's calls of `layers` are evaluated piece by piece, if on the CPU."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        self._modules: list[nn.Module] = []
        self._thread = 0
        if mx.default_device() == mx.Device(mx.cpu):
            for layer in layers:
                self._modules += [module for name, module in layer.named_modules() if "." not in name]
        self._modules = list({id(module): module for module in self._modules}.values())
        for module in self._modules:
            interpose(module, self._on_call)

    def close(self) -> None:
        for module in self._modules:
            release(module, self._on_call)
        self._modules = []

    def __enter__(self) -> None:
        self._thread = get_ident()

    def __exit__(self, *_: object) -> None:
        self._thread = 0

    def _on_call(self, module: nn.Module, call: Any, *args: Any, **kwargs: Any) -> Any:
        output = call(*args, **kwargs)
        if self._thread == get_ident():
            mx.eval([leaf for _, leaf in tree_flatten(output) if isinstance(leaf, mx.array)])
        return output
