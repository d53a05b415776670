"""Where a converted draft runs: one prediction of one package at a time, its key-value state kept by the host."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np


class Host(Protocol):
    """See the module. All calls come from one thread."""

    name: str
    """As `--draft-host` says it."""

    def call(self, package: int, function: str, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One prediction of `manifest.packages[package]`. Outputs may be views, valid until the package's next call."""

    def blank(self, package: int, function: str) -> dict[str, np.ndarray]:
        """Inputs of zeros, of the right shapes and types: for trying it."""

    def close(self) -> None:
        """Release everything. Idempotent."""
