"""Which packages a draft becomes: a cut at the boundary, and where a package would get too large."""

from dataclasses import dataclass

from mirror_mlx.convert.head import padded
from mirror_mlx.convert.options import Build
from mirror_mlx.convert.precision import weighed
from mirror_mlx.convert.weights import Draft
from mirror_mlx.errors import DraftError


@dataclass(frozen=True)
class Part:
    """One package to be: layers start … stop−1 of a track, or the head of several tracks (no layers).

    second   its layers come after the boundary
    expands  the streams start here
    ends     these are the track's last layers
    heads    gives `max`, `arg` and `sumexp`
    """

    file: str
    track: int
    start: int
    stop: int
    second: bool
    expands: bool
    ends: bool
    heads: bool

    @property
    def functions(self) -> tuple[str, ...]:
        return ("rollout", "prefill") if self.stop > self.start else ("rollout",)


def planned(draft: Draft, build: Build) -> list[Part]:
    """The packages in order: of each track its layers, then the head. Raises DraftError where a part is too large."""
    config, limit = draft.config, build.max_bytes
    tracks, boundary, last = config.tracks, config.boundary, config.base["num_hidden_layers"]
    width, hidden = config.hidden_size // tracks, config.hidden_size
    head = weighed(padded(draft.head_size, build.buckets_for(draft.head_size)), draft.head_width, build.precision)
    down = weighed(config.head_rank or 0, width, build.precision)
    ending = down + (head if tracks == 1 else 0)
    beginning = weighed(width, hidden, build.precision) if tracks > 1 else 0
    layer = _layer(draft, build)
    if max(head, layer + ending, layer + beginning) > limit:
        raise DraftError(
            f"a layer has {layer / 1e6:.0f} MB and the head {head / 1e6:.0f} MB, and a package at most "
            f"{limit / 1e6:.0f} MB: choose a smaller precision, or a draft with a trimmed or factored head"
        )
    runs = _runs(0, boundary, layer, 0, 0, limit) + _runs(boundary, last, layer, beginning, ending, limit)
    parts = []
    for track in range(tracks):
        prefix = f"track-{track + 1}-" if tracks > 1 else ""
        for number, (start, stop) in enumerate(runs, start=1):
            ends = stop == last
            file = f"{prefix}segment-{number}.mlpackage"
            parts.append(
                Part(file, track, start, stop, start >= boundary, start == boundary, ends, ends and tracks == 1)
            )
    if tracks > 1:
        parts.append(Part("head.mlpackage", 0, last, last, True, False, False, True))
    return parts


def _layer(draft: Draft, build: Build) -> int:
    """Bytes of one layer of one track."""
    base, tracks = draft.config.base, draft.config.tracks
    width, inner = base["hidden_size"] // tracks, base["intermediate_size"] // tracks
    queries = base["num_attention_heads"] // tracks * draft.config.head_dim
    keys = draft.kv_heads * draft.config.head_dim
    shapes = [(queries, width), (keys, width), (keys, width), (width, queries)] + [(inner, width)] * 3
    return sum(weighed(rows, columns, build.precision) for rows, columns in shapes)


def _runs(start: int, stop: int, layer: int, first: int, last: int, limit: float) -> list[tuple[int, int]]:
    """Layers start … stop−1 in runs below the limit, filled from the end; the first and the last layer carry more."""
    sizes = [layer] * (stop - start)
    sizes[0] += first
    sizes[-1] += last
    runs, end, total = [], stop, 0
    for place in reversed(range(start, stop)):
        size = sizes[place - start]
        if total and total + size > limit:
            runs.append((place + 1, end))
            end, total = place + 1, 0
        total += size
    return [(start, end), *reversed(runs)]
