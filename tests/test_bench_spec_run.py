"""SpecBench's runner, with scripted methods on a clock that only they move: none looks good by the harness's doing."""

from dataclasses import replace

import pytest

from mirror_mlx.bench.spec_figures import summarise
from mirror_mlx.bench.spec_log import Results
from mirror_mlx.bench.spec_questions import Question
from mirror_mlx.bench.spec_run import Account, Plan, order, run
from mirror_mlx.errors import MirrorError

STOP = 0
QUESTIONS = [Question(str(i), "qa", (f"question {i}",), "qa") for i in range(4)]
PLAN = Plan(QUESTIONS, (0.0,), runs=2, warmups=3, max_tokens=20)


class Letters:
    """`Texts` in which a letter is a token."""

    stops = frozenset({STOP})

    def prompt(self, question, answers):
        turns = zip(question.turns, [*answers, ""], strict=False)
        return [ord(letter) for turn, answer in turns for letter in f"{turn}|{answer}"]

    def text(self, tokens):
        return "".join(chr(token) for token in tokens if token != STOP)

    def recount(self, text):
        return len(text) - 1


class Clock:
    """ns, moved by the methods. slowing: how much longer everything takes after each answer."""

    def __init__(self, slowing=0.0):
        self.now, self.factor, self.slowing = 0, 1.0, slowing

    def __call__(self):
        return self.now

    def work(self, ms):
        self.now += round(ms * 1e6 * self.factor)


class Scripted:
    """Says the same letters to everything, so many in a step of `ms`; notes what it was asked."""

    own_noise = False

    def __init__(self, name, clock, *, ms=10, steps=(1,) * 8, prefill=5, says=None, more=(), account=None):
        self.name, self.clock, self.ms, self.prefill, self.lengths = name, clock, ms, prefill, steps
        self.says = says or [65 + i for i in range(sum(steps))]
        self.more, self.wrong = more, account
        self.calls, self.given = [], 0

    def fresh(self):
        self.calls.append(("fresh",))

    def empty(self, prompt):
        self.calls.append(("empty", tuple(prompt)))

    def stream(self, prompt, limit, sampling):
        self.calls.append(("stream", tuple(prompt), limit, sampling))
        self.given = 0
        self.clock.work(self.prefill)
        left = [*self.says]
        for length in self.lengths:
            self.clock.work(self.ms)
            for token in left[:length]:
                self.given += 1
                yield token
            left = left[length:]
        yield from self.more

    def account(self):
        self.clock.factor += self.clock.slowing
        steps, left = [], self.given
        for length in self.lengths:
            steps += [min(length, left)] if left else []
            left -= min(length, left)
        return Account(self.wrong or [*steps, *([left] if left else [])], where={"verify": 1.0})

    def close(self):
        pass


def measured(methods, plan=PLAN, clock=None, log=None):
    log = log or Results(None, {})
    run(plan, methods, Letters(), log, clock=clock or methods[0].clock)
    return log.records


def speedups(records, methods):
    rows = summarise(records, [method.name for method in methods])[0]["methods"]
    return {row["method"]: row["tasks"]["overall"]["speedup"]["mean"] for row in rows}


def test_every_method_is_asked_the_same():
    clock = Clock()
    methods = [Scripted(name, clock) for name in ("plain", "a", "b")]
    records = measured(methods)
    asked = [[call[1:] for call in method.calls if call[0] == "stream"] for method in methods]
    assert len(asked[0]) == 3 + 2 * len(QUESTIONS)
    assert sorted(map(str, asked[0])) == sorted(map(str, asked[1])) == sorted(map(str, asked[2]))
    for question in QUESTIONS:
        of = [record for record in records if record["question"] == question.id]
        assert len(of) == 3 * 2
        assert len({record["prompt_hash"] for record in of}) == 1
        assert all(record["equal"] is not False for record in of)
    assert speedups(records, methods) == {"plain": 1, "a": 1, "b": 1}


def test_warm_ups_are_not_counted():
    clock = Clock()

    class Cold(Scripted):
        def stream(self, *args):
            if sum(call[0] == "stream" for call in self.calls) < 3:
                self.clock.work(1e6)
            yield from super().stream(*args)

    methods = [Scripted("plain", clock), Cold("cold", clock)]
    records = measured(methods)
    assert len(records) == 2 * 2 * len(QUESTIONS)
    assert speedups(records, methods) == {"plain": 1, "cold": 1}


def test_nobody_keeps_what_it_has_seen():
    """Caches are emptied before every answer, what was learnt is forgotten before every run, warm-ups included."""
    clock = Clock()

    class Learns(Scripted):
        def stream(self, prompt, *args):
            seen = {call[1] for call in self.calls if call[0] == "stream"} if self.remembers else set()
            self.clock.work(0 if tuple(prompt) in seen else 100)
            self.remembers = True
            yield from super().stream(prompt, *args)

        def fresh(self):
            self.remembers = False
            self.calls = [*[c for c in self.calls if c[0] != "stream"], ("fresh",)]

    methods = [Scripted("plain", clock), Learns("learns", clock)]
    records = [record for record in measured(methods) if record["method"] == "learns"]
    assert {record["seconds"] for record in records} == {(100 + 5 + 80) / 1e3}
    calls = Scripted("x", clock)
    measured([Scripted("plain", clock), calls])
    for before, call in zip(calls.calls, calls.calls[1:], strict=False):
        if call[0] == "stream":
            assert before == ("empty", call[1])
    starts = [i for i, call in enumerate(calls.calls) if call[0] == "fresh"]
    assert len(starts) == 3  # two runs, and after the warm-ups
    assert calls.calls[starts[1] - 1][0] == "stream"


def test_everyone_has_every_place():
    methods = "abcdef"
    orders = [order(methods, turn) for turn in range(2 * len(methods))]
    for method in methods:
        places = [found.index(method) for found in orders]
        assert sorted(places) == sorted([*range(6), *range(6)])
        assert {sum(places[i : i + 2]) for i in range(0, 12, 2)} == {5}


def test_a_machine_that_slows_down_slows_down_all():
    clock = Clock(slowing=0.02)
    methods = [Scripted(name, clock) for name in ("plain", "a", "b", "c")]
    plan = replace(PLAN, questions=QUESTIONS * 4, runs=1)
    plan = replace(plan, questions=[replace(q, id=str(i)) for i, q in enumerate(plan.questions)])
    for name, speedup in speedups(measured(methods, plan), methods).items():
        assert speedup == pytest.approx(1, abs=0.01), name


def test_tokens_are_counted_and_cut_by_the_harness():
    clock = Clock()
    plan = replace(PLAN, runs=1, max_tokens=6)
    ends = Scripted("ends", clock, says=[65, 66, STOP, 67, 68], steps=(5,))
    longer = Scripted("longer", clock, steps=(4, 4, 4))
    records = measured([Scripted("plain", clock), ends, longer], plan)
    counts = {record["method"]: record["new_tokens"] for record in records}
    assert counts == {"plain": 6, "ends": 3, "longer": 6}
    lengths = {record["method"]: record["accept_lengths"] for record in records}
    assert lengths == {"plain": [1] * 6, "ends": [3], "longer": [4, 2]}
    assert {record["method"]: record["ended"] for record in records} == {"plain": False, "ends": True, "longer": False}
    assert {record["method"]: record["retokenised"] for record in records} == {"plain": 5, "ends": 1, "longer": 5}


def test_a_method_that_miscounts_is_refused():
    clock = Clock()
    with pytest.raises(MirrorError, match="boasts accounts for 9 tokens and gave 8"):
        measured([Scripted("plain", clock), Scripted("boasts", clock, account=[9])])
    with pytest.raises(MirrorError, match="silent gave no token"):
        measured([Scripted("silent", clock, steps=())])


def test_a_burst_at_the_start_is_no_decoding_speed():
    """All methods take 10 ms a token after the first step; one has half of its answer in that."""
    clock = Clock()
    methods = [Scripted("plain", clock), Scripted("burst", clock, steps=(4, 1, 1, 1, 1))]
    rows = summarise(measured(methods), ["plain", "burst"])[0]["methods"]
    plain, burst = (row["tasks"]["overall"]["decode_tokens_per_second"]["mean"] for row in rows)
    assert plain == pytest.approx(burst) == pytest.approx(100)


def test_time_counts_from_the_question_to_the_last_token():
    clock = Clock()
    record = measured([Scripted("plain", clock)], replace(PLAN, runs=1))[0]
    assert record["seconds"] == 0.085
    assert (record["first_seconds"], record["decode_seconds"], record["decode_tokens"]) == (0.015, 0.07, 7)


def test_answers_are_quoted_in_the_next_turn():
    clock = Clock()
    plain = Scripted("plain", clock, says=[88, STOP], steps=(1, 1))
    question = Question("7", "writing", ("one", "two"), "mt_bench")
    records = measured([plain], replace(PLAN, questions=[question], runs=1, warmups=0))
    prompts = ["".join(map(chr, call[1])) for call in plain.calls if call[0] == "stream"]
    assert prompts == ["one|", "one|Xtwo|"]
    assert [(record["turn"], record["turns"]) for record in records] == [(0, 2), (1, 2)]
    # where the second prompt no longer fits, the dialogue ends, and says so
    cut = measured([plain], replace(PLAN, questions=[question], runs=1, context=8))
    assert [record["turn"] for record in cut] == [0]
    assert summarise(cut, ["plain"])[0]["methods"][0]["cut_short"] == 1


def test_equality_as_far_as_it_is_known():
    clock = Clock()
    other = Scripted("other", clock, says=[65, 66, 99, 68], steps=(4,))
    noisy = Scripted("noisy", clock, says=[1, 2], steps=(2,))
    noisy.own_noise = True
    plain = Scripted("plain", clock, steps=(1,) * 4)
    plan = replace(PLAN, temps=(0.0, 1.0), questions=QUESTIONS[:1])
    records = {(r["temperature"], r["run"], r["method"]): r for r in measured([other, plain, noisy], plan)}
    first, second = records[0.0, 0, "other"], records[0.0, 1, "other"]
    assert (first["equal"], first["differs_at"]) == (None, None)  # it came before plain
    assert (second["equal"], second["differs_at"]) == (False, 2)
    assert records[0.0, 0, "noisy"]["equal"] is False
    assert (records[1.0, 0, "noisy"]["equal"], records[1.0, 0, "noisy"]["own_noise"]) == (None, True)
    rows = summarise(records.values(), ["plain", "other", "noisy"])
    assert [row["identical"]["same"] for row in rows[0]["methods"]] == [2, 0, 0]
    assert rows[1]["methods"][2]["identical"]["reason"] == "own noise"
