"""The streaming draft as the runtime's `Draft`: several tokens for every branch in each pass."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any

import numpy as np

from mirror_mlx.draft.protocol import Joined
from mirror_mlx.draft.streaming.layout import Feed, Layout, lay_out, packed
from mirror_mlx.draft.streaming.segments import Segments
from mirror_mlx.errors import UsageError
from mirror_mlx.messages import Candidates, Key, Root, first_pass
from mirror_mlx.rejection import Law, Proposals
from mirror_mlx.sampling import Sampler, Sampling

SHARP = 1.5
"""A stream knows less of the text than the target will, so its distribution is flatter; where tokens are sampled, this
power of it agrees with the target's more often (measured in docs/log.md)."""


@dataclass(slots=True)
class _Branch:
    """A branch: the trunk slots it sees, the slots of its own mains, what is fed to it next, and how many proposals
    it has."""

    trunk: int
    slots: list[int]
    feed: list[int]
    proposed: int = 0


class StreamingDraft:
    """Each pass proposes the main stream's token and one token of every lookahead stream.

    trust  a pass takes its streams at their word: 1 + streams tokens, computed as mains in the next pass. Where they do
           not go into the window evenly, it is the first pass that gives fewer: its tokens are the ones that count most
    exact  the next pass checks them: a branch gets only what the main stream would have said one by one, which is
           1 … 1 + streams tokens, from (1 + streams)² rows where trust computes 1 + 2·streams

    """

    max_roots: int | None = None
    host = "mlx"

    def __init__(self, segments: Segments, *, streams: int | None = None, exact: bool = False) -> None:
        self.vocab_size, self.context_length = segments.vocab_size, segments.context_length
        self._segments = segments
        self.use(streams, exact=exact)
        self._sampler = Sampler(Sampling())
        self._base = 0  # trunk tokens before this step's rows
        self._queued: list[int] = []  # glued rows that wait for the next pass
        self._glued = 0
        self._branches: dict[Key, _Branch] = {}
        self.confidences: dict[Key, Sequence[float]] = {}
        self.laws: dict[Key, Sequence[Law]] = {}
        self.guesses: dict[Key, Sequence[int]] = {}

    def use(self, streams: int | None, *, exact: bool = False, length: int | None = None) -> None:
        """From now on propose with so many of the trained streams (None: all; 0: the main stream alone,
        autoregressive), at their word or `exact`, for windows of `length` tokens (None: any). Between requests only.
        Raises UsageError for more than there are."""
        trained = self.trained_streams
        if streams is not None and not 0 <= streams <= trained:
            raise UsageError(f"streams is {streams}: this draft was trained with {trained}")
        self.streams = trained if streams is None else streams
        self.exact = exact
        self._first = 1 + self.streams if length is None or exact else first_pass(length, 1 + self.streams)

    @property
    def trained_streams(self) -> int:
        return self._segments.streams

    @property
    def model(self) -> Any:
        """The MLX model, where that is what it runs on; else None."""
        return getattr(self._segments, "model", None)

    @property
    def identity(self) -> str | None:
        """What tells this draft from others where it is no MLX model."""
        return getattr(self._segments, "identity", None)

    @property
    def width(self) -> int | None:
        passed = 1 + self.streams
        rows = passed**2 if self.exact else passed + self.streams  # of a branch, in the second segment
        if self._segments.columns is None:
            return None if self._segments.rows is None else max(1, self._segments.rows // rows)
        first, second = self._segments.columns
        return max(1, min(first // passed, second // rows))

    def begin(self, sampling: Sampling) -> None:
        self._sampler = Sampler(sampling)

    def prefill(self, tokens: Sequence[int]) -> None:
        self._check(tokens)
        self._segments.prefill(tokens)
        self._base = self._segments.used

    def glue(self, tokens: Sequence[int], candidates: int) -> Candidates | None:
        self._check(tokens)
        self._queued, self._glued = list(tokens), len(tokens)
        if not candidates:
            return None  # the rows ride along with the first pass
        tokens_, probs, own = [], [], []
        done = 0
        for feed in self._queue():
            layout = lay_out([feed], self._segments.used, 0)
            said = self._segments.run(layout, list(layout.mains[0]))
            after = tokens[done + 1 : done + len(feed.tokens) + 1]
            part = said.candidates(self._sampler, _following(layout, layout.mains[0]), after, candidates)
            tokens_ += part.tokens
            probs += part.probs
            own += part.own
            done += len(feed.tokens)
        return Candidates(tokens_, probs, own)

    def joins(self, rows: int) -> bool:
        columns, passed = self._segments.columns, 1 + self.streams
        mains, branch = (passed, passed**2) if self.exact else (1, passed)
        return columns is None or (rows + mains <= columns[0] and rows + branch <= columns[1])

    def join(self, tokens: Sequence[int], candidates: int, root: Root, after: Sequence[int] = ()) -> Joined:
        self.confidences, self.laws, self.guesses = {}, {}, {}
        if not 0 <= root.token < self.vocab_size:
            return self.glue(tokens, candidates), {}
        self.glue(tokens, 0)
        self.expand([root])
        (glued,) = self._queue()
        if self.exact:  # they are checked, as streams' proposals are
            known = takewhile(lambda token: token < self.vocab_size, after)
            self._branches[root.key].feed += islice(known, self.streams)
        return self._pass([(None, glued), (root.key, self._feed(root.key))], candidates)

    def expand(self, roots: Sequence[Root]) -> None:
        for root in roots:
            if root.token < self.vocab_size and root.row < self._glued:
                self._branches[root.key] = _Branch(self._base + root.row + 1, [], [root.token])

    def advance(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[int]]:
        known = [key for key in keys if key in self._branches]
        if not known:
            return {}
        feeds: list[tuple[Key | None, Feed]] = [(None, feed) for feed in self._queue()]
        feeds += [(key, self._feed(key)) for key in known]
        proposed: dict[Key, Sequence[int]] = {}
        self.confidences, self.laws, self.guesses = {}, {}, {}
        for group in packed(feeds, self.streams, self._segments.columns):
            if self._segments.full and all(key is not None for key, _ in group):
                break  # these branches end here; the next step has the slots again
            proposed |= self._pass(group)[1]
        return proposed

    def _feed(self, key: Key) -> Feed:
        branch, carry = self._branches[key], "every" if self.exact else "last"
        return Feed(branch.trunk, branch.slots, branch.feed, carry, None if branch.proposed else self._first - 1)

    def _pass(
        self, group: Sequence[tuple[Key | None, Feed]], candidates: int = 0
    ) -> tuple[Candidates | None, dict[Key, Sequence[int]]]:
        """One pass over these feeds; those with a key are branches, and go on. candidates: wanted of each row of the
        first feed, which is none."""
        layout = lay_out([feed for _, feed in group], self._segments.used, self.streams)
        named = layout.mains[0] if candidates else range(0)
        wanted: list[int] = []
        for (key, _), mains, streams in zip(group, layout.mains, layout.streams, strict=True):
            for place, row in enumerate(mains):
                if key is not None and (self.exact or place == len(mains) - 1):
                    wanted += [row, *streams[place]]
        said, opinion = self._segments.run(layout, [*named, *wanted]), None
        if candidates:
            rows, window = said.part(slice(len(named))), group[0][1].tokens[1:]
            opinion = rows.candidates(self._sampler, _following(layout, named), window, candidates)
            said = said.part(slice(len(named), None))
        sharp = np.where(layout.stream[wanted] > 0, SHARP, 1.0).astype(np.float32)
        made = Proposals([], [])
        if wanted:
            made = said.choose(self._sampler, _following(layout, wanted), sharp, after=self._base)
        tokens, sure, laws = iter(made.tokens), iter(made.confidences), iter(made.laws or ())
        proposed: dict[Key, Sequence[int]] = {}
        for number, (key, feed) in enumerate(group):
            if key is None:
                continue
            branch, slots, held = self._branches[key], layout.slots(number), 0
            rows = len(feed.tokens) if self.exact else 1
            each = [1 + len(ahead) for ahead in layout.streams[number][-rows:]]
            found = [list(islice(tokens, count)) for count in each]
            certain = [list(islice(sure, count)) for count in each]
            drawn = [list(islice(laws, count)) for count in each]
            if self.exact:
                while held + 1 < rows and found[held][0] == feed.tokens[held + 1]:
                    held += 1
                proposed[key] = [row[0] for row in found[: held + 1]]
                self.confidences[key] = [row[0] for row in certain[: held + 1]]
                self.laws[key] = [row[0] for row in drawn[: held + 1] if row]
                self.guesses[key] = found[held][1:]
                slots = slots[: held + 1]
            else:
                proposed[key], self.confidences[key], self.laws[key] = found[0], certain[0], drawn[0]
            branch.slots = [*branch.slots, *slots]
            branch.feed = found[held]
            branch.proposed += len(proposed[key])
        return opinion, proposed

    def commit(self, rows: int) -> None:
        if self._queued and rows:  # nothing was drafted in this step
            self._segments.prefill(self._queued[:rows])
        self._cut(self._base + rows)

    def rewind(self, length: int) -> None:
        self._cut(length)

    def close(self) -> None:
        self._branches.clear()
        self._segments.close()

    def _cut(self, length: int) -> None:
        self._segments.cut(length)
        self._branches.clear()
        self._queued, self._glued, self._base = [], 0, length

    def _queue(self) -> list[Feed]:
        """The glued rows that wait, as feeds that fit a pass."""
        queued, self._queued = self._queued, []
        step = self._segments.columns[0] if self._segments.columns else max(len(queued), 1)
        return [Feed(self._base + i, [], queued[i : i + step], "none") for i in range(0, len(queued), step)]

    def _check(self, tokens: Sequence[int]) -> None:
        if not all(0 <= token < self.vocab_size for token in tokens):
            raise ValueError("the text has tokens outside the draft's vocabulary")


def _following(layout: Layout, rows: Iterable[int]) -> list[int]:
    """The positions of the tokens that follow these rows of the second segment."""
    return [int(layout.second.positions[row]) + 1 for row in rows]
