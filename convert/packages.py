"""From parts of a draft to .mlpackage folders: contents, one program for each function, one multifunction package."""

import gc
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mirror_mlx.convert import head
from mirror_mlx.convert.graph import Contents, program, state
from mirror_mlx.convert.options import Build
from mirror_mlx.convert.plan import Part
from mirror_mlx.convert.toolkit import ct, quiet
from mirror_mlx.convert.weights import Draft

Kv = tuple[int, int, int, int]


def contents(draft: Draft, part: Part, build: Build) -> Contents:
    """The weights of one package, read from the draft now."""
    config, track = draft.config, part.track
    buckets = build.buckets_for(draft.head_size)
    rows: Any = ()
    norm = draft.norm(track) if part.ends else None
    down = draft.head_down(track) if part.ends else None
    if part.heads:
        rows = draft.head_rows(head.part_size(buckets), head.padded(draft.head_size, buckets))
    return Contents(
        width=config.hidden_size // config.tracks, whole=config.hidden_size, head_dim=config.head_dim,
        kv_heads=draft.kv_heads, buckets=buckets,
        blocks=tuple(draft.block(track, layer) for layer in range(part.start, part.stop)),
        align=draft.align(track) if part.expands else None,
        norm=norm, down=down, head=tuple(rows), head_width=draft.head_width,
    )  # fmt: skip


def save(draft: Draft, part: Part, build: Build, folder: Path, done: Callable[[str], None]) -> Kv | None:
    """Write the package into `folder`; calls `done` with the name of every function that is ready.

    Returns the shape of its `kv`, None for the head. In memory is at most this package, twice.
    """
    weights = contents(draft, part, build)
    kv = state(weights, build) if weights.blocks else None
    single = {}
    for function in part.functions:
        single[function] = folder / f"{function}.mlpackage"
        convert(program(part, weights, function, build), single[function])
        done(function)
    del weights
    gc.collect()  # programs point to themselves
    merge(single, folder / part.file)
    for path in single.values():
        shutil.rmtree(path)
    for file in (folder / part.file).rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)  # coremltools leaves some to the owner alone
    return kv


def convert(made: Any, path: Path) -> None:
    """A program to a package whose only function is `main`.

    What is saved is what was built: no pass fuses, casts or merges anything. The program has float16 wherever it should
    (compute_precision only says that nothing is to be cast), and coremltools' ninety passes take most of the time.
    """
    with _saving():
        ct.convert(
            made, source="milinternal", convert_to="mlprogram", minimum_deployment_target=ct.target.macOS15,
            compute_units=ct.ComputeUnit.CPU_AND_NE, compute_precision=ct.precision.FLOAT32, skip_model_load=True,
            pass_pipeline=ct.PassPipeline(["common::dead_code_elimination"], "plain"),
            package_dir=str(path),
        )  # fmt: skip


def merge(single: dict[str, Path], merged: Path) -> None:
    """Packages of one function each, to one whose functions share their weights."""
    with _saving():
        described = ct.utils.MultiFunctionDescriptor()
        for function, path in single.items():
            described.add_function(str(path), src_function_name="main", target_function_name=function)
        described.default_function_name = next(iter(single))
        ct.utils.save_multifunction(described, str(merged))
    gc.collect()


@contextmanager
def _saving() -> Iterator[None]:
    """Raises OSError where a weight file could not be written; coremltools does not say why."""
    with quiet():
        try:
            yield
        except RuntimeError as reason:
            if "writing" not in str(reason):
                raise
            raise OSError("the disk is full, or does not take files of this size") from None
