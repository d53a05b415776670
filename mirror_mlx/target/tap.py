"""The trained tap: a low-rank residual on a tapped hidden state, before the target's own norm and head.

    h' = h + (h · downᵀ) · upᵀ

Without one the tap is the plain logit lens. Neither ever decides a token: a bad adapter costs hits, nothing else.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mirror_mlx.errors import ModelError

FILE = "tap.safetensors"
_NAME = re.compile(r"layers\.(\d+)\.(down|up)")


class Residual(nn.Module):
    """h + (h · downᵀ) · upᵀ, in the type of h.

    down  [rank, hidden]
    up    [hidden, rank]
    """

    def __init__(self, down: mx.array, up: mx.array) -> None:
        super().__init__()
        self.down, self.up = down, up

    def __call__(self, hidden: mx.array) -> mx.array:
        return hidden + ((hidden @ self.down.T) @ self.up.T).astype(hidden.dtype)


class TapAdapter(nn.Module):
    """A residual for each trained exit layer.

    layers  {after how many layers: (down [rank, hidden], up [hidden, rank])}
    source  the file it was read from, for messages
    Raises ModelError where shapes or types do not go together. It is a module like any other, so that it can be
    trained: `target.stages.Stages.lens(adapter.apply(layer, output), inputs)` has gradients in its parameters.

    >>> adapter = TapAdapter({6: (mx.zeros((8, 64)), mx.zeros((64, 8)))})
    >>> adapter.apply(6, mx.ones((1, 2, 64))).shape
    (1, 2, 64)
    """

    def __init__(
        self, layers: Mapping[int, tuple[mx.array, mx.array]], *, source: Path | str = "the tap adapter"
    ) -> None:
        super().__init__()
        self._source = str(source)
        self._numbers = tuple(sorted(layers))
        self.residuals = [Residual(*layers[number]) for number in self._numbers]
        self._hidden = self._checked()

    @property
    def layers(self) -> dict[int, tuple[mx.array, mx.array]]:
        """{after how many layers: (down, up)}, as they are now."""
        return {number: (r.down, r.up) for number, r in zip(self._numbers, self.residuals, strict=True)}

    def apply(self, layer: int, output: Any) -> Any:
        """What layer number `layer` returned (1 is the first), adapted; unchanged where there is nothing for it."""
        return self.residuals[self._numbers.index(layer)](output) if layer in self._numbers else output

    def refusal(self, widths: Sequence[int | None]) -> str | None:
        """Why it cannot be used with a model, or None.

        widths  the hidden size of what each layer returns; None: it does not return one array [1, S, hidden]
        Raises ModelError where it was made for another model.
        """
        if self._numbers[0] < 1 or self._numbers[-1] >= len(widths):
            raise self._misfit(f"layers {self._listed()}, and this model has {len(widths)}")
        for number in self._numbers:
            width = widths[number - 1]
            if width is None:
                return f"the model's layer {number} does not return one hidden state"
            if width != self._hidden:
                raise self._misfit(f"a hidden size of {self._hidden}, and this model has {width}")
        return None

    def _listed(self) -> str:
        return ", ".join(map(str, self._numbers))

    def _misfit(self, what: str) -> ModelError:
        return ModelError(f"{self._source} is made for {what}: train a tap for this model, or remove the file")

    def _checked(self) -> int:
        """The hidden size that all its layers have."""
        if not self._numbers:
            raise ModelError(f"{self._source} has no layers: it is empty")
        sizes = set()
        for number, (down, up) in self.layers.items():
            if down.ndim != 2 or up.ndim != 2 or down.shape != up.shape[::-1]:
                raise ModelError(
                    f"{self._source}: layer {number} has down {down.shape} and up {up.shape}: "
                    "[rank, hidden] and [hidden, rank] are expected"
                )
            if not all(mx.issubdtype(array.dtype, mx.floating) for array in (down, up)):
                raise ModelError(f"{self._source}: layer {number} is not of floating-point numbers")
            sizes.add(down.shape[1])
        if len(sizes) > 1:
            raise ModelError(f"{self._source}: its layers have different hidden sizes, {sorted(sizes)}")
        return int(sizes.pop())


def load(folder: Path) -> TapAdapter | None:
    """The adapter in `folder`, or None where there is no `tap.safetensors`. Raises ModelError for a damaged one."""
    file = folder / FILE
    if not file.exists():
        return None
    try:
        weights = mx.load(str(file))
        assert isinstance(weights, dict)
        mx.eval(weights)
    except (OSError, ValueError, RuntimeError) as reason:
        raise ModelError(f"{file} is damaged ({' '.join(str(reason).split())}): train the tap again") from None
    found: dict[int, dict[str, mx.array]] = {}
    for name, value in weights.items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise ModelError(f"{file} is no tap adapter: {name!r} is none of its names")
        found.setdefault(int(match[1]), {})[match[2]] = value
    for number, parts in found.items():
        if len(parts) < 2:
            missing = "up" if "down" in parts else "down"
            raise ModelError(f"{file} is damaged: layers.{number}.{missing} is missing: train the tap again")
    return TapAdapter({number: (parts["down"], parts["up"]) for number, parts in found.items()}, source=file)


def save(adapter: TapAdapter, folder: Path) -> None:
    """Write `tap.safetensors` into `folder`, at once: a reader never sees half of it."""
    weights = {}
    for number, (down, up) in adapter.layers.items():
        weights |= {f"layers.{number}.down": down, f"layers.{number}.up": up}
    partial = folder / f".{FILE}"
    mx.save_safetensors(str(partial), weights, metadata={"format": "mlx"})
    os.replace(partial, folder / FILE)
