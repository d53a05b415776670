"""Does a package go on saying the same? Many predictions in a process of their own, which may crash.

Some compressed packages are right at first and crash, or say something else, after some hundred predictions on the
Neural Engine (apple/coremltools#2716). All predictions here have the same inputs and write the same rows, so that all
must say the same; and the first must be near what MLX makes of the package.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from mirror_mlx import hosting
from mirror_mlx.doctor.finding import Trouble
from mirror_mlx.draft.package import child, manifest
from mirror_mlx.draft.package.host import Host
from mirror_mlx.draft.package.manifest import Manifest
from mirror_mlx.draft.package.reference import ReferenceHost
from mirror_mlx.errors import DraftError

COUNT = 200
LIMIT = 120.0  # seconds
COSINE = 0.99
"""Least likeness of the first answer to the reference's: fp16 arithmetic stays well above it."""


def examine(
    made: Manifest,
    folder: Path,
    index: int,
    host: str,
    *,
    count: int | None = None,
    command: Sequence[str] | None = None,
) -> tuple[str, Mapping[str, Any]]:
    """Raises Trouble. command: of the child, before its arguments; None: this Python, this module."""
    what, count = made.packages[index].file, count or COUNT
    advice = "use --draft-host mlx, or convert the draft again with --precision float16"
    start = [*(command or [sys.executable, "-m", __name__]), str(folder), str(index), host, str(count)]
    answer = child.ask(start, LIMIT)
    if answer.code is None:
        raise Trouble(f"no end after {LIMIT:.0f} s", advice)
    if answer.crash is not None:
        raise Trouble(f"Core ML crashed ({answer.crash})", advice)
    if not isinstance(answer.value, dict):
        raise Trouble(f"ended with code {answer.code}: {answer.said[-200:]}", advice)
    figures = answer.value
    if "fault" in figures:
        raise Trouble(figures["fault"], advice)
    said, cosine = f"{figures['changed']} of {count} differ from the first", figures["cosine"]
    if cosine is not None:
        said += f", cosine {cosine:.4f} to the reference"
    if figures["changed"] or (cosine is not None and not cosine >= COSINE):
        raise Trouble(f"{what}: {said}", advice, figures)
    return said, figures


def main(arguments: Sequence[str]) -> None:
    """In the child: FOLDER INDEX HOST COUNT ANSWER."""
    folder, index, host, count, answer = arguments
    try:
        made = manifest.read(Path(folder))
        found = _run(hosting.host(host, made, Path(folder)), made, Path(folder), int(index), int(count))
    except DraftError as error:
        found = {"fault": str(error)}
    Path(answer).write_text(json.dumps(found))


def _run(host: Host, made: Manifest, folder: Path, index: int, count: int) -> dict[str, Any]:
    package = made.packages[index]
    function = "rollout" if "rollout" in package.functions else package.functions[0]
    inputs = _inputs(host.blank(index, function))
    first = {name: np.array(value) for name, value in host.call(index, function, inputs).items()}
    changed = 0
    for _ in range(count - 1):
        again = host.call(index, function, inputs)
        changed += any(not np.array_equal(value, again[name]) for name, value in first.items())
    host.close()
    if find_spec("coremltools") is None:
        return {"changed": changed, "cosine": None}
    reference = ReferenceHost(made, folder)
    wanted = reference.call(index, function, inputs)
    reference.close()
    name = "h" if "h" in first else "max" if "max" in first else next(iter(first))
    return {"changed": changed, "cosine": _cosine(first[name], wanted[name])}


def _inputs(blank: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Something to work on, the same in every process."""
    random, made = np.random.default_rng(0), {}
    for name, value in blank.items():
        made[name] = value
        if name in ("x", "y", "sel", "cos"):
            made[name] = random.standard_normal(value.shape).astype(value.dtype)
    return made


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-30))


if __name__ == "__main__":
    main(sys.argv[1:])
