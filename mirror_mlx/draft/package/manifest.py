"""What a converted draft is: the manifest beside its packages, and whether both are what they say. Plain data.

    ane_models/<name>/manifest.json
    ane_models/<name>/segment-1.mlpackage, segment-2.mlpackage, …

`mirror-mlx convert` writes it; loading checks all of it. Key-value slots, columns and masks are those of
`mirror_mlx.draft.streaming.layout`.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mirror_mlx.errors import DraftError

FORMAT = 1
FILE = "manifest.json"
Precision = Literal["float16", "int8", "lut6", "lut4"]
Write = Literal["slice", "blend"]
PRECISIONS: tuple[Precision, ...] = ("float16", "int8", "lut6", "lut4")
WRITES: tuple[Write, ...] = ("slice", "blend")


@dataclass(frozen=True)
class Source:
    """What was converted, by its contents.

    weights, tokenizer   SHA-256 of the files, as `digest` takes them
    """

    name: str
    model_type: str
    weights: str
    tokenizer: str


@dataclass(frozen=True)
class Shapes:
    """The fixed sizes of every package.

    hidden_size       C, over all tracks
    vocab_size        V, full ids
    head_size         V', rows of the head
    streams           lookahead streams s
    tracks            G
    boundary          layers before the streams start
    num_layers
    head_dim          D
    context           key-value slots of every segment
    first, second     columns of a rollout pass before and after the boundary
    prefill           columns of a prefill pass
    buckets           K: head row i, of token `ids[i]`, is in bucket i mod K
    """

    hidden_size: int
    vocab_size: int
    head_size: int
    streams: int
    tracks: int
    boundary: int
    num_layers: int
    head_dim: int
    context: int
    first: int
    second: int
    prefill: int
    buckets: int


@dataclass(frozen=True)
class Package:
    """One .mlpackage: a run of layers of one track, or with several tracks the head (no layers).

    file        its folder's name
    track       which track; 0 for the head
    layers      first layer and the one after the last
    expands     the streams start here: takes `sel` and `stream_add`
    heads       ends with the head: gives `max`, `arg` and `sumexp` instead of `h`
    state       shape of its state `kv`, or of the input `kv` where the draft is stateless; None for the head
    functions   their names
    contents    file inside the package → SHA-256
    """

    file: str
    track: int
    layers: tuple[int, int]
    expands: bool
    heads: bool
    state: tuple[int, int, int, int] | None
    functions: tuple[str, ...]
    contents: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class Manifest:
    """See the module.

    num_draft_tokens  γ it was sized for
    frequencies       [D/2] radians a position turns each pair by
    write             how rows get into the slots: "slice" (slice_update) or "blend" (one-hot matmul)
    stateful          key-value slots are Core ML state; else input `kv` and outputs `k`, `v` of the fresh rows
    versions          of what made it
    parity            figure → value, as converted
    """

    name: str
    draft: Source
    shapes: Shapes
    num_draft_tokens: int
    frequencies: tuple[float, ...]
    precision: Precision
    write: Write
    stateful: bool
    packages: tuple[Package, ...]
    versions: Mapping[str, str]
    parity: Mapping[str, float]
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, data: Any, where: Path | str = FILE) -> "Manifest":
        """From parsed JSON. Raises DraftError for another format, and for what is missing, unknown or of no use."""
        if not isinstance(data, dict) or "format" not in data:
            raise DraftError(f"{where} is no manifest of a converted draft")
        if data["format"] != FORMAT:
            raise DraftError(
                f"{where} has format {data['format']}, and this version reads {FORMAT}: convert the draft again"
            )
        parts = dict(data)
        for name, kind in (("draft", Source), ("shapes", Shapes)):
            parts[name] = _made(kind, parts.get(name), f"{where}: {name}")
        listed = parts.get("packages")
        if not isinstance(listed, list) or not listed:
            raise DraftError(f"{where}: packages must be a list")
        parts["packages"] = tuple(_made(Package, one, f"{where}: packages") for one in listed)
        made: Manifest = _made(cls, parts, str(where))
        made.check(where)
        return made

    def check(self, where: Path | str = FILE) -> None:
        """Raise DraftError where parts contradict each other."""
        s = self.shapes

        def need(fine: bool, what: str) -> None:
            if not fine:
                raise DraftError(f"{where}: {what}: convert the draft again")

        sizes = {name: value for name, value in asdict(s).items() if name != "streams"}
        need(all(value > 0 for value in sizes.values()) and s.streams >= 0, "a size is not positive")
        need(len(self.frequencies) == s.head_dim // 2, "frequencies and head_dim do not go together")
        need(0 < s.boundary < s.num_layers, "boundary is not inside the layers")
        need(max(s.first, s.second, s.prefill) <= s.context, "a pass has more columns than there are slots")
        for track in range(s.tracks):
            own = [p for p in self.packages if p.track == track and p.layers[0] < p.layers[1]]
            ends = [0, *(p.layers[1] for p in own)]
            need([p.layers[0] for p in own] == ends[:-1] and ends[-1] == s.num_layers, "layers are missing")
            need([p.expands for p in own] == [p.layers[0] == s.boundary for p in own], "no package begins the streams")
        need([p.heads for p in self.packages] == [False] * (len(self.packages) - 1) + [True], "the head is not last")


def _made(kind: Any, data: Any, where: str) -> Any:
    """A dataclass from a JSON object: exactly its fields, each of its type."""
    if not isinstance(data, dict):
        raise DraftError(f"{where} is missing: convert the draft again")
    hints = get_type_hints(kind)
    if wrong := sorted(hints.keys() ^ data.keys()):
        raise DraftError(f"{where}: missing or unknown: {', '.join(wrong)}: convert the draft again")
    for name, value in data.items():
        if not _fits(value, hints[name]):
            raise DraftError(f"{where}: {name} cannot be {str(value)[:40]!r}: convert the draft again")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in data.items()})


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin is UnionType:
        return any(_fits(value, one) for one in get_args(hint))
    if origin is tuple:
        kinds = get_args(hint)
        kinds = kinds[:1] * len(value) if isinstance(value, list | tuple) and kinds[1:] == (...,) else kinds
        return isinstance(value, list | tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
    if origin is Mapping:
        return isinstance(value, dict) and all(_fits(one, get_args(hint)[1]) for one in value.values())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and not (hint is int and isinstance(value, bool))


def read(folder: Path) -> Manifest:
    """The manifest in `folder`, checked in itself. Raises DraftError."""
    file = folder / FILE
    try:
        return Manifest.of(json.loads(file.read_text(encoding="utf-8")), file)
    except OSError as reason:
        raise DraftError(f"{file} cannot be read: {reason.strerror}: convert the draft again") from None
    except ValueError as reason:
        raise DraftError(f"{file} is damaged ({reason}): convert the draft again") from None


def verify(manifest: Manifest, folder: Path) -> None:
    """Raise DraftError unless every file of every package is there and is what it was."""
    for package in manifest.packages:
        found = contents(folder / package.file)
        for name, expected in package.contents.items():
            if name not in found:
                raise DraftError(f"{folder / package.file / name} is missing: convert the draft again")
            if found[name] != expected:
                raise DraftError(
                    f"{folder / package.file / name} was changed after conversion: convert the draft again"
                )
        if extra := sorted(found.keys() - package.contents.keys()):
            raise DraftError(f"{folder / package.file / extra[0]} is no part of the package: convert the draft again")


def contents(package: Path) -> dict[str, str]:
    """Every file in a package, by its path inside it → SHA-256."""
    files = sorted(path for path in package.rglob("*") if path.is_file())
    return {path.relative_to(package).as_posix(): _sha256(path).hexdigest() for path in files}


def digest(files: Iterator[Path]) -> str:
    """One SHA-256 over the names and contents of some files, in the order of their names."""
    whole = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.name):
        whole.update(path.name.encode() + b"\0" + _sha256(path).digest())
    return whole.hexdigest()


def source(folder: Path) -> tuple[str, str]:
    """`Source.weights` and `Source.tokenizer` of the draft in `folder`."""
    weights = [folder / "config.json", *folder.glob("*.safetensors")]
    return digest(iter(weights)), digest(folder.glob("tokenizer*.json"))


def _sha256(path: Path) -> Any:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")
