"""The tensors that a function of a package takes and gives: name → (shape, type)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mirror_mlx.errors import DraftError

Features = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


def check(given: Mapping[str, np.ndarray[Any, Any]], expected: Features, where: str) -> None:
    """Raise DraftError unless `given` has exactly these names, shapes and types."""
    if wrong := sorted(given.keys() ^ expected.keys()):
        raise DraftError(f"{where}: inputs missing or unknown: {', '.join(wrong)}: convert the draft again")
    for name, (shape, dtype) in expected.items():
        array = given[name]
        if array.shape != shape or array.dtype != dtype:
            found = f"{array.dtype}{list(array.shape)}"
            raise DraftError(f"{where}: {name} is {dtype}{list(shape)}, not {found}: convert the draft again")


def blank(features: Features) -> dict[str, np.ndarray[Any, Any]]:
    """Zeros of each: nothing masked, slot 0. What comes out means nothing, but it is a prediction."""
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in features.items()}
