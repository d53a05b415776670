"""From a draft folder to a converted draft: packages, checks, parity, manifest. Nothing is there before all of it is.

Everything is written into a folder beside the destination, which takes its place in the end. Whatever stops a
conversion (an error, Ctrl-C, a full disk) leaves an older result as it was, and nothing else.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import mirror_mlx
from mirror_mlx.convert import checks, packages
from mirror_mlx.convert.options import Build
from mirror_mlx.convert.plan import Part, planned
from mirror_mlx.convert.weights import Draft
from mirror_mlx.draft.package import manifest as manifests
from mirror_mlx.draft.package.manifest import Manifest, Package, Shapes, Source
from mirror_mlx.errors import DraftError, UsageError

Report = Callable[[int, int, str], None]
"""(steps done, of so many, what was done)"""
Check = Callable[[Manifest, Path, Path], Mapping[str, float]]
"""Parity: (manifest, folder of the packages, draft folder) → figures. Raises DraftError where they are bad."""


def convert(
    draft: Path, out: Path, build: Build, *, report: Report | None = None, check: Check | None = None
) -> Manifest:
    """Convert the draft in folder `draft` into folder `out`, which an older result there is replaced by.

    Raises UsageError for options that cannot be, DraftError for a draft that cannot be converted, for packages that
    break a rule or fail `check`, and where `out` cannot be written.
    """
    build.check()
    _check_destination(out)
    opened = Draft(draft, build)
    parts = planned(opened, build)
    total = sum(packages.steps(opened, part, build) + 1 for part in parts) + (check is not None)
    done = 0

    def step(what: str) -> None:
        nonlocal done
        done += 1
        if report is not None:
            report(done, total, what)

    with _atomic(out) as folder:
        made = [_package(opened, part, build, folder, step) for part in parts]
        manifest = _manifest(opened, draft, out.name, build, made)
        manifest.check(out / manifests.FILE)
        if check is not None:
            manifest = replace(manifest, parity=dict(check(manifest, folder, draft)))
            step("parity")
        text = json.dumps(manifest.to_json(), indent=2) + "\n"
        (folder / manifests.FILE).write_text(text, encoding="utf-8")
    return manifest


def _package(draft: Draft, part: Part, build: Build, folder: Path, step: Callable[[str], None]) -> Package:
    path = folder / part.file
    kv = packages.save(draft, part, build, folder, step)
    checks.check(path, stateful=build.stateful, max_bytes=build.max_bytes)
    step(part.file)
    layers = (part.start, part.stop)
    return Package(
        part.file, part.track, layers, part.expands, part.heads, kv, part.functions, manifests.contents(path)
    )


def _manifest(draft: Draft, folder: Path, name: str, build: Build, made: list[Package]) -> Manifest:
    config = draft.config
    weights, tokenizer = manifests.source(folder)
    shapes = Shapes(
        config.hidden_size, config.base["vocab_size"], draft.head_size, config.streams, config.tracks, config.boundary,
        config.base["num_hidden_layers"], config.head_dim, build.context, build.first, build.second, build.prefill,
        build.buckets_for(draft.head_size),
    )  # fmt: skip
    versions = {"mirror-mlx": mirror_mlx.__version__} | {n: version(n) for n in ("coremltools", "mlx", "mlx-lm")}
    return Manifest(
        name, Source(folder.resolve().name, config.base["model_type"], weights, tokenizer), shapes,
        build.num_draft_tokens, draft.frequencies, build.precision, build.write, build.stateful, tuple(made),
        versions, {},
    )  # fmt: skip


def _check_destination(out: Path) -> None:
    if out.exists() and not (out / manifests.FILE).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is there, and is no converted draft: choose another folder")


@contextmanager
def _atomic(out: Path) -> Iterator[Path]:
    """A folder to write in, which becomes `out` when all went well and is gone otherwise."""
    before = tempfile.tempdir
    folder: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        (folder / "new").mkdir()
        (folder / "temporary").mkdir()
        tempfile.tempdir = str(folder / "temporary")  # where coremltools writes weights first
        yield folder / "new"
        _swap(folder, out)
    except OSError as reason:
        what = f"{reason.strerror or reason}" + (f" ({reason.filename})" if reason.filename else "")
        raise DraftError(f"{out} was not written: {what}") from None
    finally:
        tempfile.tempdir = before
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _swap(folder: Path, out: Path) -> None:
    """`new` in `folder` becomes `out`; what was there lies in `folder` after that."""
    old = folder / "old"
    try:
        if out.exists():
            os.rename(out, old)
        os.rename(folder / "new", out)
    except BaseException:
        if old.exists() and not out.exists():
            os.rename(old, out)
        raise
