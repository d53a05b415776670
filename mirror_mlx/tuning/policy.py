"""Who says what decoding does next: a fixed setting, one whose windows grow and shrink, or the governor. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from mirror_mlx.messages import HITS, Source
from mirror_mlx.tuning.costs import Way
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.stopping import Stop
from mirror_mlx.tuning.tally import Plained
from mirror_mlx.tuning.worth import Worth

ALL = 1 << 62
"""Tokens of a stretch that does not end before the request does."""
_FIRST = 5  # proposals of the first window where lengths adapt


@dataclass(frozen=True, slots=True)
class Ask:
    """What to do next.

    setting  of a step
    plain    tokens to decode plainly instead; 0: none
    probe    beside them the draft proposes a window in this setting, which is compared with them; None: no
    """

    setting: Setting
    plain: int = 0
    probe: Setting | None = None

    @property
    def ahead(self) -> Setting | None:
        """For a window that is proposed before anybody verifies."""
        return self.probe if self.plain else self.setting


@dataclass(frozen=True, slots=True)
class Stepped:
    """One step of speculation. ms.

    setting      that it was done with
    length       proposals verified, of which `accepted` held; `confidences`: the draft's own probability of each;
                 by: where they came from
    source       of the next window; opened, own: roots in all and the draft's own; place: which one it was, prepared
                 or not; None: none of them
    target       the target's part; whole: until the next step began; waited: of that, for the window it begins with
    passed       the draft's passes
    opening      whether it is a request's first, in which the target has the end of the prompt to do as well
    guessed      whether the draft has known the target's own token when it proposed the window; None: not all of that
                 held, or it had no idea
    checked      passes for the next window that had streams to check, and how many proposals of these held
    ends         whether the next window reaches to the end of the text, or of what was asked for: it takes less, then
    known        when the draft was told the outcome, after it was told of the step; 0: there is no draft
    thought      what a policy has thought beside the verification
    """

    setting: Setting
    length: int
    accepted: int
    target: float
    whole: float
    source: Source = "none"
    confidences: Sequence[float] = ()
    opened: int = 0
    own: int = 0
    place: int | None = None
    passed: Sequence["Passed"] = ()
    by: Source = "none"
    opening: bool = False
    checked: tuple[int, int] = (0, 0)
    ends: bool = False
    waited: float = 0.0
    known: float = 0.0
    guessed: bool | None = None
    thought: float = 0.0


class Passed(NamedTuple):
    """One of the draft's passes: ms, over as much as so many branches are, and so many of the window's rows that no
    pass had carried; over these alone: glue. beside: the target was at work."""

    ms: float
    branches: float
    rows: int = 0
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Probed:
    """A window that the draft proposed beside plain decoding. ms.

    length    proposals compared with the text, of which `accepted` held; confidences as in `Stepped`
    one_pass  of the draft, over one branch; None: it made none
    host      where the draft was
    """

    way: Way
    length: int
    accepted: int
    confidences: Sequence[float] = ()
    one_pass: float | None = None
    host: str = ""


@dataclass(frozen=True, slots=True)
class Account:
    """What was chosen, and why.

    setting  the last one
    gain     expected tokens a second ÷ plain decoding's; None: nobody has measured
    plain    ms a token of plain decoding, by the last measurement; None: as gain
    tried    what was decided, one after the other, in words
    """

    setting: str
    gain: float | None = None
    plain: float | None = None
    tried: tuple[str, ...] = ()


class Policy(Protocol):
    """Facts in, one `Ask` at a time out."""

    def ask(self) -> Ask: ...

    def opening(self, prompt: int) -> Setting | None:
        """For the window that the draft prepares while the target takes in so many tokens; None: none, as where plain
        decoding comes first."""

    def enough(self, confidences: Sequence[float]) -> int:
        """How many proposals of a window are worth verifying."""

    def stop(self, setting: Setting) -> Stop | None:
        """When a window that was asked for in this setting is long enough where the target waits for it; None: when it
        is as long as the setting says."""

    def waits(self, setting: Setting) -> float | None:
        """Seconds to wait for the first window, which the draft was asked for in this setting, until the text goes on
        plainly meanwhile; None: as long as it takes."""

    def patience(self, setting: Setting) -> float | None:
        """Seconds to wait at most for a window that was asked for in this setting; None: as long as anybody may."""

    def proposed(self, confidences: Sequence[float]) -> None:
        """A window is there, and not verified yet."""

    def verified(self, length: int, accepted: int, confidences: Sequence[float]) -> None:
        """So many of a window's proposals held: said as soon as it is known, before the next window is asked for."""

    def stepped(self, fact: Stepped) -> None:
        """A step of speculation is over. The next one has begun, as was decided before it: what follows is for the one
        after that."""

    def plained(self, fact: Plained) -> None:
        """Tokens were decoded plainly: told at the end of a stretch, and of a request amid one."""

    def probed(self, fact: Probed) -> None:
        """A window was proposed beside a stretch of plain decoding."""

    def stretched(self) -> None:
        """A stretch of plain decoding has ended."""

    def failed(self) -> None:
        """The draft died, or was silent for too long."""

    def answered(self, tokens: int) -> None:
        """A request is over, in which so many were decoded."""

    def account(self) -> Account:
        """What was decided since the last time this was asked."""


class Fixed:
    """The same setting all the time; plain decoding once the draft has failed.

    worth  who names the outcomes in a hybrid; None: both draft and tap
    """

    def __init__(self, setting: Setting, worth: Worth | None = None) -> None:
        self._setting, self._worth = setting, worth

    def ask(self) -> Ask:
        if self._setting.mode == "mirror" and self._worth is not None:
            return Ask(replace(self._setting, predictor=self._worth.predictor))
        return Ask(self._setting, ALL if self._setting.mode == "ar" else 0)

    def opening(self, prompt: int) -> Setting | None:
        return self.ask().ahead

    def enough(self, confidences: Sequence[float]) -> int:
        return len(confidences)

    def stop(self, setting: Setting) -> Stop | None:
        return None

    def waits(self, setting: Setting) -> float | None:
        return None

    def patience(self, setting: Setting) -> float | None:
        return None

    def proposed(self, confidences: Sequence[float]) -> None:
        pass

    def verified(self, length: int, accepted: int, confidences: Sequence[float]) -> None:
        pass

    def stepped(self, fact: Stepped) -> None:
        if self._worth is not None and fact.setting.mode == "mirror" and not (fact.opening or fact.ends):
            own = None if fact.place is None or fact.source not in HITS else fact.place < fact.own
            self._worth.saw(fact.setting.predictor, fact.accepted + 1, fact.whole, fact.source == "empty", own)

    def plained(self, fact: Plained) -> None:
        pass

    def probed(self, fact: Probed) -> None:
        pass

    def stretched(self) -> None:
        pass

    def failed(self) -> None:
        self._setting = Setting("ar")

    def answered(self, tokens: int) -> None:
        pass

    def account(self) -> Account:
        return Account(str(self._setting))


class Growing(Fixed):
    """Windows grow by two after one that held and shrink by one after another, as assisted generation in transformers
    has it."""

    def __init__(self, setting: Setting, worth: Worth | None = None) -> None:
        self._most = setting.length
        super().__init__(_sized(setting, min(_FIRST, setting.length)), worth)

    def verified(self, length: int, accepted: int, confidences: Sequence[float]) -> None:
        if length and self._setting.mode != "ar":
            grown = self._setting.length + (2 if accepted == length else -1)
            self._setting = _sized(self._setting, max(1, min(grown, self._most)))


def _sized(setting: Setting, length: int) -> Setting:
    return replace(setting, length=length, late=length)
