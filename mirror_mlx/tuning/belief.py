"""What a governor has learnt of the text and the draft: which proposals hold, which outcomes are foreseen. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import NormalDist, fmean

from mirror_mlx.messages import PREDICTORS, Predictor, first_pass
from mirror_mlx.tuning.apart import Apart, shift
from mirror_mlx.tuning.costs import Way, trusted
from mirror_mlx.tuning.drift import Often
from mirror_mlx.tuning.ease import Ease, eased
from mirror_mlx.tuning.policy import Probed, Stepped
from mirror_mlx.tuning.ranks import Ranks
from mirror_mlx.tuning.running import Acceptance, Confidence, Streams, alive, outcomes
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.stopping import Kinds

_LONGEST = 16  # proposals of a window, most often
_ANSWER, _WEIGHT = 512.0, 0.25  # tokens of an answer, before there was one, and how many answers that counts for
_KEEP = 0.9  # of the answers before, with each newer one
_WITHOUT = 0.985  # of what was seen of the draft of late, with each token that comes without a window of its
_ANOTHER = 0.5  # and with each text
_FOUND = 0.99  # of what a lookup proposed, with each newer window: texts differ less than a few windows do
_KINDS = [NormalDist().inv_cdf((at + 0.5) / 8) for at in range(8)]  # of windows: equally many of each
_Made = tuple[int, int, float]
"""What decides how often a window's proposals hold: streams taken at their word, proposals of its first pass, ease."""
_HOPE = 1.08  # times: calibration compares few, and what is taken for too bad is never tried, nor found to be better


class Believed:
    """A `throughput.Belief`: acceptance, hits under one predictor, what is proposed without a model, and how long an
    answer is. tried: windows of the draft's that this is from."""

    def __init__(
        self,
        alive: Callable[[int], Sequence[float]],
        hits: Callable[[float], float],
        proposer: "_Proposer",
        answer: Callable[[], float],
        guessed: Callable[[], float],
        windows: Callable[[int], Kinds],
        tried: int,
    ) -> None:
        self.alive, self.hits, self.answer, self.guessed, self.windows = alive, hits, answer, guessed, windows
        self.tried, self.filled = tried, proposer.filled
        self.backup = proposer.backup


class Beliefs:
    """Of one draft, or of a proposer that needs none.

    ways    in which the draft proposes; none: there is no draft
    holds   the share of proposals that held when it was calibrated, by way
    backup  whether something proposes at no cost where the draft has nothing
    """

    def __init__(self, ways: Iterable[Way], holds: Mapping[Way, float], backup: bool) -> None:
        ways = list(ways)
        self._drafts = bool(ways)
        checked = [share for (streams, exact), share in holds.items() if exact or not streams]
        usual = fmean(checked) if checked else max(holds.values(), default=0.5)
        self._main = Acceptance(min(max(usual, 0.95), _HOPE * usual))
        self._streams = {
            streams: Streams(self._main, streams, min(1.0, holds.get((streams, exact), 0.9 * usual) / usual))
            for streams, exact in ways if streams and not exact
        }  # fmt: skip
        self._ease = Ease()
        self._known: dict[tuple[int, int], list[float]] = {}  # how often each proposal holds
        self._lists: dict[_Made, list[float]] = {}  # and how often as many do, in a text that is so easy
        self._kinds: dict[_Made, list[list[float]]] = {}  # the same for windows told apart
        self._apart = {trusted(way): Apart() for way in (*ways, (0, False))}
        self._sure = {trusted(way): Confidence() for way in (*ways, (0, False))}
        self._ranks: dict[Predictor, Ranks] = {predictor: Ranks() for predictor in PREDICTORS}
        self._guessed = {way: Often() for way in ways}  # after a whole window, beside one more proposal of it
        self._proposer = _Proposer(backup)
        self._answers = (_WEIGHT * _ANSWER, _WEIGHT)  # tokens in all, and how many
        self._tried = 0  # windows of the draft's that were compared
        self._made: Setting | None = None  # what the next window was asked for with, if it came from a step

    def of(self, setting: Setting, ease: float = 0.0) -> Believed:
        """ease: of the text, beside what it is on the whole."""
        hits = self._ranks[setting.predictor].believing(self._first(setting))
        guesses = partial(self._guesses, setting.way, setting.length)
        if ease:  # what is easy to propose is easy to foresee
            hits, guesses = partial(_eased, hits, ease), partial(_eased, guesses, ease)
        windows = partial(self._windows, setting, ease)
        return Believed(
            partial(self._alive, setting, ease), hits, self._proposer, self._answer, guesses, windows, self._tried
        )

    def _windows(self, setting: Setting, ease: float, count: int) -> Kinds:
        """What holds on average is as `_alive` has it, whatever windows there are."""
        key, spread = _made(setting, ease), self._apart[trusted(setting.way)].spread
        if len((found := self._kinds.get(key, [[]]))[0]) < count:
            usual, rates = self._alive(setting, ease, count), self._rates(setting.way, setting.length, count)
            each = [alive([eased(rate, ease + spread * by) for rate in rates], count) for by in _KINDS]
            by_place = [usual[place] / max(fmean(one[place] for one in each), 1e-9) for place in range(count)]
            found = [[min(1.0, share * by) for share, by in zip(one, by_place, strict=True)] for one in each]
            self._kinds[key] = found
        return found

    def _alive(self, setting: Setting, ease: float, count: int) -> Sequence[float]:
        """The same list serves many settings: a decision looks at a hundred of them."""
        key = _made(setting, ease)
        if len(found := self._lists.get(key, [])) < count:
            rates = self._rates(setting.way, setting.length, max(count, _LONGEST))
            self._lists[key] = found = alive([eased(rate, ease) for rate in rates], len(rates))
        return found[:count]

    def _first(self, setting: Setting) -> float:
        """How often the outcome is the first root, where little was seen of that: a draft whose windows hold, and what
        it would propose next, has foreseen it."""
        if setting.predictor == "tap" or setting.length < 1:
            return Ranks.FIRST
        whole = self._alive(setting, 0.0, setting.length)[-1]
        return max(Ranks.FIRST, whole * self._guesses(setting.way, setting.length))

    def _learns(self) -> None:
        """What holds is not what it was."""
        self._known.clear()
        self._lists.clear()
        self._kinds.clear()

    def _rates(self, way: Way, length: int, count: int) -> list[float]:
        """How often each of so many proposals of a window of this length holds on the whole."""
        streams = trusted(way)
        first = first_pass(length, 1 + streams) if streams in self._streams else 0
        if len(found := self._known.get((streams, first), [])) < count:
            most = max(count, _LONGEST)
            found = self._streams[streams].rates(first, most) if first else self._main.rates(most)
            self._known[streams, first] = found
        return found[:count]

    @property
    def ease(self) -> float:
        """How much easier the text is of late than on the whole, in log odds."""
        return self._ease.value

    @property
    def differs(self) -> bool:
        """Whether some texts seem to be easier than others."""
        return self._ease.differs

    def verified(self, setting: Setting, length: int, accepted: int, confidences: Sequence[float]) -> None:
        """A window's proposals were compared, which was made like this."""
        beyond = self._beyond(setting.way, length, confidences)
        self._ease.saw(self._rates(setting.way, setting.length, length + 1), outcomes(length, accepted, beyond))

    def proposed(self, setting: Setting, confidences: Sequence[float]) -> None:
        """A window is there, made like this, and not verified yet."""
        worth = self.sure(setting.way).worth
        self._ease.proposed(
            self._rates(setting.way, setting.length, len(confidences)), [worth(sure) for sure in confidences]
        )

    def paused(self) -> None:
        """No windows are verified for a while: how easy the text is of late is not known any more."""
        self._ease.begins()

    def _beyond(self, way: Way, length: int, confidences: Sequence[float]) -> float | None:
        """How likely the first proposal was to hold that was cut off a window; None: none was."""
        return self.sure(way).worth(confidences[length]) if length < len(confidences) else None

    def _guesses(self, way: Way, length: int) -> float:
        """It is what the draft would propose next: what is not known of it is known of proposals."""
        return min(1.0, self._guessed[way].value * self._next(way, length)) if way in self._guessed else 0.0

    def _next(self, way: Way, length: int) -> float:
        """How often one more proposal of a window of this length would hold."""
        return self._rates(way, length, length + 1)[length]

    def _answer(self) -> float:
        tokens, count = self._answers
        return tokens / count

    def answered(self, tokens: int) -> None:
        """An answer has ended. The next one may be easier, or harder."""
        self._ease.begins()
        self._lapsed(_ANOTHER)
        self._answers = _KEEP * self._answers[0] + tokens, _KEEP * self._answers[1] + 1

    def sure(self, way: Way) -> Confidence:
        """What the draft's own probabilities are worth."""
        return self._sure[trusted(way)]

    def stepped(self, fact: Stepped) -> None:
        made, self._made = self._made or fact.setting, fact.setting
        if fact.setting.alone:
            self._lapsed(_WITHOUT ** (fact.accepted + 1))
        if not self._drafts or fact.by in ("lookup", "empty"):
            self._proposer.saw(fact.length, fact.accepted)
        others = fact.by in ("lookup", "rest")  # not the draft's, or nobody says of which of its streams they are
        # Of a text of which it has seen nothing yet a draft knows less than of what follows.
        if (fact.length or fact.confidences) and not (others and self._drafts) and not fact.opening:
            self._compared(
                made.way, made.length, fact.length, fact.accepted, fact.confidences, stopped=made.mode == "sd"
            )
        streams, checked = fact.setting.way
        if checked and streams in self._streams and fact.checked[0]:
            self._learns()
            self._streams[streams].checked(*fact.checked)
        if fact.guessed is not None and made.way in self._guessed and fact.length == made.length:
            self._guessed[made.way].saw(fact.guessed, self._next(made.way, made.length))
        if fact.opened:
            self._named(fact)

    def agreed(self, fact: Stepped) -> tuple[Way, int, float]:
        """The way in which streams are checked, in how many passes of this step, and how many of their proposals held;
        of a step whose streams were taken at their word, what they are worth by now, as if there had been a pass."""
        streams, exact = fact.setting.way
        if not exact and streams in self._streams and fact.length > 1:
            return (streams, True), 1, self._streams[streams].agreed()
        return (fact.setting.way, *fact.checked)

    def _named(self, fact: Stepped) -> None:
        """The outcome was one of the roots, or none."""
        for predictor, ranks in self._ranks.items():
            if predictor == fact.setting.predictor:
                ranks.saw(fact.place, fact.opened)
            elif predictor == "draft" and fact.own:  # of a hybrid
                ranks.saw(fact.place if fact.place is not None and fact.place < fact.own else None, fact.own)
            else:
                ranks.faded()

    def probed(self, fact: Probed) -> None:
        self._made = None
        if not self._drafts:
            self._proposer.saw(fact.length, fact.accepted)
        self._compared(fact.way, fact.length, fact.length, fact.accepted, fact.confidences)

    def plained(self, tokens: int, offers: Iterable[tuple[int, int]]) -> None:
        """So many were decoded plainly. offers: what a backup would have proposed there, and how much of it held."""
        self._lapsed(_WITHOUT**tokens)
        for length, accepted in offers:
            self._proposer.saw(length, accepted)

    def _lapsed(self, left: float) -> None:
        """What was seen of the draft of late says so much of what is to come."""
        self._main.lapsed(left)
        self._learns()

    def _compared(
        self, way: Way, asked: int, length: int, accepted: int, confidences: Sequence[float], stopped: bool = False
    ) -> None:
        """A window of so many proposals, where `asked` were asked for. stopped: if there are fewer, those before the
        next one were not likely to hold: of such windows as are longer it holds more often."""
        streams = trusted(way)
        beyond = self._beyond(way, length, confidences)
        if confidences:
            worth, rates = self._sure[streams].worth, self._rates(way, asked, len(confidences) + 1)
            off = shift(rates, [worth(sure) for sure in confidences])
            self._apart[streams].saw(off)
            if beyond is None and length < asked and stopped:
                beyond = eased(rates[length], off)
        self._tried += 1
        self._learns()
        if streams in self._streams:
            self._streams[streams].saw(first_pass(asked, 1 + streams), length, accepted, beyond)
        else:
            self._main.saw(length, accepted, beyond)
        self._sure[streams].saw(confidences[:length], accepted)


def _made(setting: Setting, ease: float) -> _Made:
    streams = trusted(setting.way)
    return streams, first_pass(setting.length, 1 + streams), ease


def _eased(of: Callable[..., float], ease: float, *asked: float) -> float:
    return eased(min(of(*asked), 1.0), ease)


class _Proposer:
    """What proposes at no cost: all there is where there is no draft, a backup beside one.

    used  whether it is a backup
    """

    def __init__(self, used: bool) -> None:
        self._used = used
        self._filled, self._alive = Acceptance(keep=_FOUND), Acceptance(0.3, keep=_FOUND)

    def saw(self, length: int, accepted: int) -> None:
        """A step without a window of the draft's, or what it would have had beside one."""
        self._filled.saw(1, min(length, 1))
        if length:
            self._alive.saw(length, accepted)

    def filled(self) -> float:
        return self._filled.rate(0)

    def backup(self, count: int) -> float:
        return self.filled() * sum(self._alive.alive(count)) if self._used else 0.0
