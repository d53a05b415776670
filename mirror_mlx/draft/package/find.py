"""Where converted drafts lie, and which one is of a given draft."""

from collections.abc import Iterator
from pathlib import Path

from mirror_mlx.draft.package import manifest
from mirror_mlx.draft.package.manifest import Manifest
from mirror_mlx.errors import DraftError

NAME = "ane_models"
CACHE = Path("~/.cache/mirror-mlx") / NAME
BUNDLED = Path(__file__).parents[2] / NAME


def roots() -> list[Path]:
    """Folders of converted drafts, the user's own first."""
    return [Path(NAME), CACHE.expanduser(), BUNDLED]


def of(draft: Path) -> tuple[Path, Manifest] | None:
    """The packages made of the draft in this folder, with their manifest, or None. What is damaged or of another
    version is passed over: `mirror-mlx doctor` speaks of it."""
    weights, tokenizer = manifest.source(draft)
    for folder in _folders():
        try:
            found = manifest.read(folder)
        except DraftError:
            continue
        if (found.draft.weights, found.draft.tokenizer) == (weights, tokenizer):
            return folder, found
    return None


def _folders() -> Iterator[Path]:
    for root in roots():
        yield from sorted(path.parent for path in root.glob(f"*/{manifest.FILE}"))
