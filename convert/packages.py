"""From parts of a draft to .mlpackage folders: contents, one program of all functions, one package."""

import gc
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
Done = Callable[[str], None]


def steps(draft: Draft, part: Part, build: Build) -> int:
    """How often `save` calls `done` for this package."""
    rows, size = _rows(draft, build)
    return part.stop - part.start + (-(-rows // size) if part.heads else 0)


def contents(draft: Draft, part: Part, build: Build, done: Done = lambda what: None) -> Contents:
    """The weights of one package, read from the draft and compressed now, layer by layer."""
    config, track = draft.config, part.track
    rows, size = _rows(draft, build)
    head_parts, blocks = [], []
    norm = draft.norm(track) if part.ends else None
    down = draft.head_down(track) if part.ends else None
    # The head first: while it is read, the rows as they are in the draft are in memory too.
    for linear in draft.head_rows(size, rows) if part.heads else ():
        head_parts.append(linear)
        done(f"{part.file}: head")
    for layer in range(part.start, part.stop):
        blocks.append(draft.block(track, layer))
        done(f"{part.file}: layer {layer}")
    return Contents(
        width=config.hidden_size // config.tracks, whole=config.hidden_size, head_dim=config.head_dim,
        kv_heads=draft.kv_heads, buckets=build.buckets_for(draft.head_size), blocks=tuple(blocks),
        align=draft.align(track) if part.expands else None,
        norm=norm, down=down, head=tuple(head_parts), head_width=draft.head_width,
    )  # fmt: skip


def save(draft: Draft, part: Part, build: Build, folder: Path, done: Done) -> Kv | None:
    """Write the package into `folder`; calls `done` for every layer and part of the head that is read.

    Returns the shape of its `kv`, None for the head. In memory are this package's weights, once.
    """
    weights = contents(draft, part, build, done)
    kv = state(weights, build) if weights.blocks else None
    convert(program(part, weights, build), folder / part.file)
    del weights
    gc.collect()  # programs point to themselves
    for file in (folder / part.file).rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)  # coremltools leaves some to the owner alone
    return kv


def convert(made: Any, path: Path) -> None:
    """A program to a package.

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


def _rows(draft: Draft, build: Build) -> tuple[int, int]:
    """Rows of the head with its padding, and of one part of it."""
    buckets = build.buckets_for(draft.head_size)
    return head.padded(draft.head_size, buckets), head.part_size(buckets)


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
