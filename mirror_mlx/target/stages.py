"""The layers of a loaded model as stages: their outputs can be recorded, and stepped over.

Recording gives the tap's hidden state and the points at which the work can be submitted. Stepping over gives the
logit lens without new forward code: the model's own forward is called with every layer answering with the tapped
output, so that norm, head, scaling and soft-capping are the model's own, for any architecture. Embeddings and masks
that such a call builds are never evaluated.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.cache import make_prompt_cache

from mirror_mlx.interpose import interpose, release


class Stages:
    """All decoder layers of a model, in the order its forward calls them."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._layers = _distinct(model.layers)
        self._record: list[Any] | None = None
        self._replay: Any = None
        self._one = False  # whether each is computed before the next is called
        self._thread = 0  # a draft may be the same model, on its own thread
        for layer in self._layers:
            interpose(layer, self._on_call)

    def close(self) -> None:
        """Give the model its own layers back."""
        for layer in self._layers:
            release(layer, self._on_call)
        self._layers = []

    def _on_call(self, layer: nn.Module, call: Any, *args: Any, **kwargs: Any) -> Any:
        if self._thread != get_ident():
            return call(*args, **kwargs)
        if self._replay is not None:
            return _handles(self._replay)
        if self._one:
            mx.eval(arrays((args, kwargs)))
        output = call(*args, **kwargs)
        if self._record is not None:
            self._record.append(_handles(output))
        return output

    @contextmanager
    def recording(self) -> Iterator[list[Any]]:
        """Collects what each layer returns, in call order: usually [1, S, hidden]; a tuple or stack for some models."""
        self._record, self._thread = [], get_ident()
        try:
            yield self._record
        finally:
            self._record, self._thread = None, 0

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """What goes into a layer is computed before it is called. What comes out of the last one may never be needed,
        and is not."""
        self._one, self._thread = True, get_ident()
        try:
            yield
        finally:
            self._one, self._thread = False, 0

    def lens(self, output: Any, inputs: mx.array) -> mx.array:
        """The model's final norm and head on what a layer returned: → logits [1, S, V].

        Differentiable in `output`; for training [B, S, hidden] goes too, with `inputs` [B, S].
        """
        self._replay, self._thread = output, get_ident()
        try:
            # Fresh and empty: some forwards trim the caches they are given.
            return self._model(inputs, cache=make_prompt_cache(self._model))
        finally:
            self._replay, self._thread = None, 0


def _handles(output: Any) -> Any:
    """The same arrays under new handles: some models write into what their layers return."""
    return tree_map(lambda leaf: copy.copy(leaf) if isinstance(leaf, mx.array) else leaf, output)


def arrays(output: Any) -> list[mx.array]:
    """The arrays in what a layer takes or returns."""
    return [leaf for _, leaf in tree_flatten(output) if isinstance(leaf, mx.array)]


def width(output: Any) -> int | None:
    """The hidden size of what a layer returned, if that is one array [1, S, hidden]."""
    return output.shape[-1] if isinstance(output, mx.array) and output.ndim == 3 and output.shape[0] == 1 else None


def _distinct(layers: Any) -> list[nn.Module]:
    seen: dict[int, nn.Module] = {}
    for layer in layers:
        if isinstance(layer, nn.Module):
            seen.setdefault(id(layer), layer)
    return list(seen.values())
