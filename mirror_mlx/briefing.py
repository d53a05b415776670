"""What the draft is told of each step, and what is learnt from it when it is over."""

from collections.abc import Collection, Mapping

from mirror_mlx.jobs import Ticket
from mirror_mlx.messages import Window
from mirror_mlx.options import Options
from mirror_mlx.pooling import Pooling
from mirror_mlx.rounds import Plan
from mirror_mlx.target import Target
from mirror_mlx.trace import StepTrace
from mirror_mlx.tuning.due import Timetable
from mirror_mlx.tuning.fanout import Fan
from mirror_mlx.tuning.policy import Passed, Stepped
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.stopping import Stop


class Briefing:
    """Of one request. Arguments as for `decoding.Decoding`."""

    def __init__(
        self,
        target: Target,
        options: Options,
        *,
        fan: Fan,
        pooling: Mapping[int, Pooling],
        times: Timetable | None,
        stops: Collection[int],
    ) -> None:
        self._target, self._options, self._stops = target, options, stops
        self._fan, self._pooling, self._times = fan, pooling, times

    def plan(self, window: Window, setting: Setting, room: int, stop: Stop | None = None) -> Plan:
        """What the draft may do while this window is verified. room: how many tokens the next one may have; stop: see
        `rounds.Plan`."""
        o, taps = self._options, self._target.tap_refusal is None
        serial, both = setting.mode != "mirror", taps and setting.predictor == "hybrid"
        late = setting.late > 0 and o.fallback == "jit"  # else each pass is worth beginning
        return Plan(
            window=window.tokens,
            beyond=window.beyond,
            length=max(0, min(setting.length, room)),
            vocab_size=self._target.vocab_size,
            predictor=None if serial else setting.predictor,
            fallback="jit" if serial or o.fallback == "jit" else "empty",
            kappa=o.kappa,
            max_roots=setting.roots,
            tap=taps,
            late=setting.late,
            stop=stop,
            stops=self._stops,
            due=self._times.of(len(window.tokens), setting) if late and not serial and self._times else None,
            pooling=self._pooling[setting.exit_layer],
            fan_out=None if serial else self._fan.of(len(window.tokens) + 1, setting.roots // (1 + both), o.kappa),
        )

    def learnt(
        self, setting: Setting, ticket: Ticket | None, note: StepTrace, made: Window, room: int, waited: float
    ) -> Stepped:
        """What the policy is to be told of a step, all but how long it was. made: the next window, before it is cut,
        which has room for so many proposals; waited: ms, for the step's own."""
        ends = room <= len(made.tokens) or any(token in self._stops for token in made.tokens[-1:])
        fact = _fact(setting, ticket, note, made, ends, waited)
        if ticket is not None:
            self._fan.saw(fact.length, fact.accepted, ticket.round.rank(note.outcome), self._options.kappa)
        if self._times is not None:
            self._times.saw(fact)
        return fact


def _fact(setting: Setting, ticket: Ticket | None, note: StepTrace, made: Window, ends: bool, waited: float) -> Stepped:
    passed = [
        Passed(one.ns / 1e6, setting.load(one.branches, one.fresh, one.second), one.rows, not one.late)
        for one in (ticket.passes if ticket is not None else ())
    ]
    return Stepped(
        setting,
        length=len(note.window.tokens),
        accepted=note.outcome.accepted,
        target=note.busy / 1e6,
        whole=0.0,
        waited=waited,
        source=note.next,  # type: ignore[arg-type]
        confidences=note.window.confidences,
        opened=ticket.roots if ticket is not None else 0,
        own=ticket.round.own if ticket is not None else 0,
        place=note.place,
        passed=passed,
        by=note.window.source,
        opening=note.step == 0,
        checked=made.checked,
        ends=ends,
        known=ticket.known / 1e6 if ticket is not None else 0.0,
        guessed=note.guessed,
        thought=note.thought / 1e6,
    )
