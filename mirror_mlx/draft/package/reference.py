"""The `reference` host: converted packages executed by MLX, wherever there is no Neural Engine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from mirror_mlx.draft.package.manifest import Manifest
from mirror_mlx.draft.package.program import Program


class ReferenceHost:
    """See `host.Host`. precision: as `program.Program`."""

    name = "reference"

    def __init__(
        self, manifest: Manifest, folder: Path, *, precision: Literal["float32", "float16"] = "float32"
    ) -> None:
        self._programs = [Program(folder / package.file, precision=precision) for package in manifest.packages]
        self._states = [program.state() for program in self._programs]

    def call(self, package: int, function: str, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        found = self._programs[package].run(function, inputs, self._states[package])
        return {name: np.array(value) for name, value in found.items()}

    def close(self) -> None:
        self._programs, self._states = [], []
