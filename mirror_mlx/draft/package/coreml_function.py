"""One function of one package, loaded, with the memory of its inputs and outputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mirror_mlx.draft.package.coreml_bridge import Bridge
from mirror_mlx.draft.package.coreml_features import check
from mirror_mlx.draft.package.coreml_memory import Block

Shared = dict[tuple[str, tuple[int, ...], np.dtype[Any]], Block]
"""Input blocks of a package by name, shape and type: its functions take turns, so equal inputs are one memory."""


class Function:
    """Inputs are copied in, outputs read in place, and neither is ever allocated again.

    inputs     name → block
    outputs    name → block, rows padded to 64 bytes
    refused    outputs that Core ML put elsewhere than offered, so that they had to be copied
    """

    def __init__(self, bridge: Bridge, model: Any, where: str, shared: Shared) -> None:
        self.model = model
        self.where = where
        self.refused: set[str] = set()
        self._bridge = bridge
        self.takes, self.gives = bridge.features(model)
        self.inputs: dict[str, Block] = {}
        for name, (shape, dtype) in self.takes.items():
            key = (name, shape, dtype)
            self.inputs[name] = shared[key] = shared.get(key) or Block(shape, dtype)
        self.outputs = {name: Block(shape, dtype, padded=True) for name, (shape, dtype) in self.gives.items()}
        arrays = {name: bridge.array(block) for name, block in self.inputs.items()}
        self._offered = {name: bridge.array(block) for name, block in self.outputs.items()}
        self._provider = bridge.provider(arrays)
        self._options = bridge.options(self._offered)

    def run(self, given: Mapping[str, np.ndarray[Any, Any]], state: Any) -> dict[str, np.ndarray[Any, Any]]:
        """One prediction. The outputs are views of `outputs`, good until the next one."""
        check(given, self.takes, self.where)
        for name, block in self.inputs.items():
            if given[name] is not block.array:
                np.copyto(block.array, given[name])
        found = self._bridge.predict(self.model, self._provider, state, self._options, self.outputs, self.where)
        for name, array in found.items():
            if array is not self._offered[name]:
                self._bridge.transfer(array, self._offered[name])
                self.refused.add(name)
        return {name: block.array for name, block in self.outputs.items()}

    def held(self) -> list[Any]:
        return [*self.inputs.values(), *self.outputs.values()]
