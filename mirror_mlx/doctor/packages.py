"""A converted draft: its files, its rules, and whether it says what the draft says."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mirror_mlx import hosting
from mirror_mlx.doctor import neural_engine
from mirror_mlx.doctor.finding import Finding, Trouble, attempt
from mirror_mlx.draft.package import manifest, parts
from mirror_mlx.draft.package.manifest import Manifest
from mirror_mlx.draft.package.segments import PackageSegments

Notify = Callable[[str], None]
Figures = tuple[str, Mapping[str, Any]]

_ADVICE = "run mirror-mlx with --draft-host mlx, and report this with the output of mirror-mlx doctor --json"
_TOP1 = 0.97
"""Least share of rows whose likeliest token is the draft's, on the Neural Engine in float16."""
_TOOLS = "pip install 'mirror-mlx[coreml]', and run the doctor again"


def examine(folder: Path, drafts: Sequence[Path], host: str | None, notify: Notify) -> Iterator[Finding]:
    """All about one converted draft; what needs Core ML only where it could be used at all.

    drafts  folders one of which it may have been made of
    host    "coreml" or "coremltools"; None: there is no Core ML here
    """
    group = folder.name
    read = attempt(group, "manifest", lambda: _read(folder))
    yield read
    if read.status == "failed":
        return
    made = manifest.read(folder)
    files = attempt(group, "files", lambda: _files(made, folder))
    yield files
    if files.status == "failed":
        return
    yield _rules(group, made, folder)
    draft = _draft(made, drafts)
    yield _says(group, "says what the draft says (reference)", made, folder, draft, "reference")
    yield from neural_engine.latencies(group, made, folder, "reference")
    if host is None:
        yield from (Finding(group, name, "skipped", hosting.lacking()) for name in neural_engine.NAMES)
        return
    uses = list(neural_engine.first_uses(group, made, folder, host, notify))
    yield from uses
    if all(one.status != "failed" for one in uses):
        yield _says(group, f"says what the draft says ({host})", made, folder, draft, host)
        yield from neural_engine.examine(group, made, folder, host, notify)


def _read(folder: Path) -> Figures:
    made = manifest.read(folder)
    shapes = made.shapes
    said = (
        f"{made.draft.name}: {len(made.packages)} packages, {made.precision}, {shapes.context} slots, "
        f"{shapes.first} and {shapes.second} columns, {shapes.streams} streams, windows of {made.num_draft_tokens}"
    )
    if not made.parity:
        raise Trouble(said + ", never compared with its draft", "convert the draft again", status="failed")
    return said, {"folder": str(folder), "precision": made.precision, "parity": dict(made.parity)}


def _files(made: Manifest, folder: Path) -> Figures:
    manifest.verify(made, folder)
    size = sum(file.stat().st_size for package in made.packages for file in (folder / package.file).rglob("*"))
    return f"as they were made, {size / 1e6:.1f} MB", {"bytes": size}


def _rules(group: str, made: Manifest, folder: Path) -> Finding:
    name = "rules of the Neural Engine"
    if find_spec("coremltools") is None:
        return Finding(group, name, "skipped", "it takes coremltools", _TOOLS)
    from mirror_mlx.convert import checks
    from mirror_mlx.convert.options import Build

    def work() -> Figures:
        for package in made.packages:
            checks.check(folder / package.file, stateful=made.stateful, max_bytes=Build().max_bytes)
        return "kept: shapes, operations, state, sizes", {}

    return attempt(group, name, work)


def _draft(made: Manifest, drafts: Sequence[Path]) -> Path | None:
    for folder in drafts:
        if (folder / "config.json").is_file() and manifest.source(folder) == (made.draft.weights, made.draft.tokenizer):
            return folder
    return None


def _says(group: str, name: str, made: Manifest, folder: Path, draft: Path | None, host: str) -> Finding:
    if draft is None:
        return Finding(
            group, name, "skipped", f"the draft {made.draft.name} that it was made of is not at hand",
            "name its folder: mirror-mlx doctor DRAFT",
        )  # fmt: skip
    if find_spec("coremltools") is None and host == "reference":
        return Finding(group, name, "skipped", "it takes coremltools", _TOOLS)
    return attempt(group, name, lambda: _compare(made, folder, draft, host))


def _compare(made: Manifest, folder: Path, draft: Path, host: str) -> Figures:
    from mirror_mlx.convert import parity
    from mirror_mlx.convert.script import play

    segments = PackageSegments(made, hosting.host(host, made, folder), parts.read(draft, made.shapes))
    found = parity.compared(parity.wanted(draft, made), play(segments, made, parity.tokens(draft, made)))
    said = (
        f"likeliest token the draft's in {found.top1:.1%} of {found.rows} rows, hidden states "
        f"{found.hidden:.1e} apart, logits {found.logits:.1e}"
    )
    figures = {"top1": found.top1, "hidden": found.hidden, "logits": found.logits}
    if found.top1 < min(_TOP1, parity.TOP1[made.precision]):
        raise Trouble(said, _ADVICE, figures)
    return said, figures
