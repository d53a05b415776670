"""The `reference` host: converted packages executed by MLX, wherever there is no Neural Engine."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mirror_mlx import memory
from mirror_mlx.draft.package.manifest import Manifest
from mirror_mlx.draft.package.program import Precision, Program
from mirror_mlx.draft.package.program_rules import NP_TYPES


class ReferenceHost:
    """See `host.Host`.

    programs   of the manifest's packages, as `lean_programs` reads them; None: they are read here
    precision  as `program.Program`
    """

    name = "reference"

    def __init__(
        self, manifest: Manifest, folder: Path, *, precision: Precision = "float32",
        programs: Sequence[Program] | None = None,
    ) -> None:  # fmt: skip
        if programs is None:
            programs = [Program(folder / package.file, precision=precision) for package in manifest.packages]
        self._programs, self._precision = programs, precision
        self._states = [program.state() for program in self._programs]

    def call(self, package: int, function: str, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        found = self._programs[package].run(function, inputs, self._states[package], self._precision)
        return {name: np.array(value) for name, value in found.items()}

    def blank(self, package: int, function: str) -> dict[str, np.ndarray]:
        takes = self._programs[package].inputs(function)
        return {name: np.zeros(shape, NP_TYPES[dtype]) for name, (shape, dtype) in takes.items()}

    def close(self) -> None:
        self._programs, self._states = [], []


def lean_programs(manifest: Manifest, folder: Path) -> list[Program]:
    """The packages in both precisions, in about the memory that they have on disk."""
    files = [folder / package.file for package in manifest.packages]
    read = {}
    # The largest first: while one is read, it is in memory twice, beside those that were read before.
    for file in sorted(files, key=_size, reverse=True):
        read[file] = Program(file, precision=("float32", "float16"), lean=True)
        memory.release()
    return [read[file] for file in files]


def _size(package: Path) -> int:
    return sum(file.stat().st_size for file in package.rglob("*"))
