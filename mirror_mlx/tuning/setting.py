"""A way of decoding, and how much its windows give a draft to do. Pure."""

from dataclasses import dataclass
from typing import Literal

from mirror_mlx.messages import Predictor, first_pass, spare
from mirror_mlx.tuning.costs import Kind, Way, carried


@dataclass(frozen=True, slots=True)
class Setting:
    """A way of decoding.

    length      proposals in a window, at most
    late        so many are enough where the target waits for them; in turns, 0: the draft is not asked, see `alone`
    roots       outcomes prepared for in a step
    predictor   who names them
    exit_layer  of the tap, where there is one
    way         how the draft proposes
    host        where it runs; "": where it is
    """

    mode: Literal["mirror", "sd", "ar"] = "ar"
    length: int = 0
    late: int = 0
    roots: int = 0
    predictor: Predictor = "hybrid"
    exit_layer: int = 0
    way: Way = (0, False)
    host: str = ""

    def shares(self) -> tuple[float, float]:
        """What a branch's first and second pass have to do, beside what later ones do.

        A branch takes in what its last pass has proposed, and its streams. The first pass takes in one token, and
        proposes what is left over of the window; with streams that are checked, each token has streams of its own.
        """
        streams, exact = self.way
        if exact:
            return 1 / (1 + streams), 1.0
        first, whole = first_pass(self.length, 1 + streams), 1 + 2 * streams
        return first / whole, (first + streams) / whole

    def load(self, branches: float, fresh: float = 0, second: float = 0) -> float:
        """What a pass over so many branches has to do, in branches that have had several: for so many of them it is the
        first one, for so many the second."""
        in_first, in_second = self.shares()
        return branches - fresh * (1 - in_first) - second * (1 - in_second)

    def carried(self, rows: int) -> float:
        """The same for so many rows of a window, which have no streams."""
        return carried(self.way, rows)

    @property
    def own(self) -> int:
        """How many of the roots the draft itself names."""
        return {"draft": self.roots, "hybrid": self.roots // 2, "tap": 0}[self.predictor]

    @property
    def guesses(self) -> bool:
        """Whether the draft has an idea of what follows a window, without a pass for it: streams that are checked are
        one; else there is one where its passes make more proposals than are verified."""
        streams, exact = self.way
        return exact or spare(self.length, 1 + streams) > 0

    @property
    def alone(self) -> bool:
        """Whether only what proposes at no cost is asked, in turns with the target, and the draft is left out."""
        return self.mode == "sd" and self.late == 0

    @property
    def kind(self) -> Kind:
        if self.alone:
            return "lookup", (0, False), ""
        return self.mode, self.way, self.predictor if self.mode == "mirror" else ""

    def __str__(self) -> str:
        """In a few words.

        >>> print(Setting("mirror", 7, 3, 16, "draft", way=(2, True)))
        mirror: windows of 7 (3 where the target waits), 2 streams checked, 16 roots by draft
        """
        if self.mode == "ar":
            return "plain decoding"
        if self.alone:
            return f"in turns: windows of {self.length} without the draft"
        streams, exact = self.way
        how = f", {streams} streams{' checked' if exact else ''}" if streams else ""
        how += f", draft on {self.host}" if self.host else ""
        if self.mode == "sd":
            return f"in turns: windows of {self.late}{how}"
        late = "" if self.late == self.length else f" ({self.late} where the target waits)"
        tap = f", tap after layer {self.exit_layer}" if self.predictor != "draft" and self.exit_layer else ""
        return f"mirror: windows of {self.length}{late}{how}, {self.roots} roots by {self.predictor}{tap}"
