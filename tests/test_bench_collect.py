"""Collecting the records of `bench tap`: the same steps and rates as the engine's own, on every kind of draft."""

import json
import random
import time

import models
import pytest
import streams
import zoo

from mirror_mlx import Engine, Sampling
from mirror_mlx.bench.collect import Settings, as_run, measure, pair_file, records, write
from mirror_mlx.bench.hits import Tally, Way
from mirror_mlx.draft import AutoregressiveDraft, ScriptedDraft, StreamingDraft
from mirror_mlx.draft.streaming import MlxSegments
from mirror_mlx.errors import DraftError, MirrorError, ModelError, UsageError
from mirror_mlx.messages import Outcome
from mirror_mlx.rounds import State, Wait
from mirror_mlx.target import TapAdapter
from mirror_mlx.target.submission import LayerByLayer

PROMPT = [(i * 37 + 5) % zoo.VOCAB for i in range(12)]
MODEL = zoo.tiny("qwen3")
OTHER = zoo.tiny("qwen3", seed=1)
TAP = (3, "plain")
OPTIONS = {"num_draft_tokens": 4, "kappa": 3, "max_roots": 10, "exit_layer": 3}


class Patient(LayerByLayer):
    """A target slow enough for any draft: it ends once every root is open and every rollout finished."""

    engine = None

    def finish(self, suffix, tokens):
        super().finish(suffix, tokens)
        ticket = self.engine and self.engine._rendezvous._ticket
        deadline = time.monotonic() + 20
        quiet = 0
        while ticket and quiet < 3 and time.monotonic() < deadline:
            round_ = ticket.round
            done = round_.state is State.ROLLING and not round_._awaits_tap and isinstance(round_.next(), Wait)
            quiet = quiet + 1 if done else 0
            time.sleep(0.001)


def anything(context):
    """Deterministic, so that both ways of running propose the same."""
    rng = random.Random(str(context[-3:]))
    return rng.randrange(zoo.VOCAB)


def learned(sampling):
    """Says what the target would, most of the time: a script that knows the text."""
    with Engine(MODEL, mode="ar") as engine:
        expected = [r.token for r in engine.stream(PROMPT, max_tokens=60, sampling=sampling)]

    def fn(context):
        place = len(context) - len(PROMPT)
        on_track = 0 <= place < 60 and context[len(PROMPT) :] == expected[:place]
        return expected[place] if on_track and place % 4 else anything(context)

    return ScriptedDraft(fn)


DRAFTS = {
    "scripted": learned,
    "another model": lambda sampling: AutoregressiveDraft(OTHER),
    "recurrent": lambda sampling: AutoregressiveDraft(zoo.tiny("mamba2")),
    "streaming": lambda sampling: StreamingDraft(MlxSegments(streams.tiny(vocab_size=zoo.VOCAB))),
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("kind", "predictor"),
    [
        ("scripted", "hybrid"),
        ("another model", "tap"),
        ("another model", "draft"),
        ("another model", "hybrid"),
        ("recurrent", "hybrid"),
        ("streaming", "hybrid"),
    ],
)
def test_steps_and_rates_are_the_engines_own(kind, predictor, temperature):
    """No tolerance: with a target that waits for the draft nothing depends on time. A draft that computes its branches
    together may round otherwise than one that computes the one branch alone, but here no two tokens are that close."""
    sampling = Sampling(temperature=temperature, seed=4)
    patient = Patient()
    adapter = TapAdapter({1: models.random_residual(64)})
    with Engine(
        MODEL, None, DRAFTS[kind](sampling), predictor=predictor, submission=patient, draft_timeout=30, **OPTIONS
    ) as engine:
        patient.engine = engine
        engine.worth = engine.times = None  # both predictors in every step, and every pass that can be made
        decoded = [r.token for r in engine.stream(PROMPT, max_tokens=32, sampling=sampling)]
        theirs, steps = engine.stats, engine.trace.steps
        assert (theirs.mode, theirs.reason) == ("mirror", "")
    with Engine(MODEL, None, DRAFTS[kind](sampling), tap=adapter, **OPTIONS) as engine:
        tally = Tally([TAP], kappa=3, max_roots=engine._max_roots)
        ours = list(records(engine, PROMPT, 32, sampling, [TAP, (1, "plain"), (1, "trained")], depth=9))
    prepared = [step for step in steps if step.next != "none"]
    assert [(r.window, r.outcome) for r in ours] == [(s.window.tokens, s.outcome) for s in prepared]
    told = [token for r in ours for token in (*r.window[: r.outcome.accepted], r.outcome.token)]
    assert decoded[: len(told)] == told
    for record in ours:
        tally.add(record)
        assert record.taps[1, "plain"] != record.taps[1, "trained"]
        assert len(record.taps[TAP].tokens) == len(record.window) + 1
        assert {len(row) for row in record.taps[TAP].tokens} == {9}
    way = Way(predictor, 3, None if predictor == "draft" else TAP, engine._max_roots)
    assert tally.rate(way) == pytest.approx(theirs.hit_rate, abs=1e-12)
    rows = [rate for rate in theirs.hit_rate_by_row if rate is not None]
    assert [rate for rate in tally.by_row(way) if rate is not None] == pytest.approx(rows)


def test_a_stop_token_ends_a_request_and_its_last_step_prepares_nothing():
    with Engine(MODEL, mode="ar") as engine:
        expected = [r.token for r in engine.stream(PROMPT, max_tokens=40)]
    stop = expected[17]

    class Told:
        eos_token_ids = (stop,)

    with Engine(MODEL, None, learned(Sampling()), num_draft_tokens=4) as engine:
        engine.tokenizer = Told()
        found = list(records(engine, PROMPT, 40, Sampling(), [TAP], depth=5))
    told = [token for r in found for token in (*r.window[: r.outcome.accepted], r.outcome.token)]
    assert stop not in told
    assert told == expected[: len(told)]


@pytest.mark.parametrize("limit", [1, 2, 3, 9])
def test_no_window_is_longer_than_what_is_left(limit):
    with Engine(MODEL, None, learned(Sampling()), num_draft_tokens=4) as engine:
        found = list(records(engine, PROMPT[:1], limit, Sampling(), [TAP], depth=5))
    assert bool(found) == (limit > 2)
    done = 0
    for record in found:
        assert len(record.window) <= limit - done - 1
        done += record.outcome.accepted + 1
    assert done < limit


def test_a_draft_that_fails_ends_the_measurement():
    def broken(context):
        raise ZeroDivisionError("so it goes")

    with (
        Engine(MODEL, None, ScriptedDraft(broken)) as engine,
        pytest.raises(DraftError, match="draft died: ZeroDivisionError: so it goes: the draft must last"),
    ):
        list(records(engine, PROMPT, 9, Sampling(), [TAP], depth=5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.pair(tmp_path_factory.mktemp("pair"), draft={"seed": 1})


FEW = {"limit": 2, "max_tokens": 12, "num_draft_tokens": 3}


def test_a_pair_without_a_trained_tap(folder):
    done = []
    found = measure(Settings(str(folder), **FEW), lambda count, what: done.append((count, what)))
    assert found["setup"]["exit_layers"] == [1, 2, 3]
    assert found["setup"]["trained"] == []
    assert (found["setup"]["kappa"], found["setup"]["max_roots"], found["setup"]["num_draft_tokens"]) == (8, 64, 3)
    assert [tables["temperature"] for tables in found["temperatures"]] == [0.0, 1.0]
    for tables in found["temperatures"]:
        assert [(tap["exit_layer"], tap["lens"]) for tap in tables["taps"]] == [(n, "plain") for n in (1, 2, 3)]
        assert tables["steps"] >= 2
    assert found["exit_layer"] in (1, 2, 3)
    assert done[0] == (0, "loading")
    assert done[-1] == (4, "done")


def test_a_trained_tap_is_measured_beside_the_plain_one(tmp_path):
    folder = models.pair(tmp_path, draft={"seed": 1})
    models.save_tap(folder, [1, 3], scale=2.0)
    found = measure(Settings(str(folder), exit_layers=(3, 1, 2, 2), temps=(0.0,), **FEW))
    (tables,) = found["temperatures"]
    assert found["setup"]["exit_layers"] == [1, 2, 3]
    assert found["setup"]["trained"] == [1, 3]
    by = {(tap["exit_layer"], tap["lens"]): tap for tap in tables["taps"]}
    assert list(by) == [(1, "plain"), (1, "trained"), (2, "plain"), (3, "plain"), (3, "trained")]
    assert by[1, "plain"]["tap"] != by[1, "trained"]["tap"]
    rates = as_run(found["temperatures"])
    assert rates[3] == by[3, "trained"]["hybrid"]["as_run"]["hit_rate"]
    assert rates[2] == by[2, "plain"]["hybrid"]["as_run"]["hit_rate"]


def test_a_perfect_pair_hits_always_and_the_earliest_exit_is_best(tmp_path):
    folder = models.pair(tmp_path, says="Yes, 42.", loops=True)
    found = measure(Settings(str(folder), temps=(0.0,), **FEW))
    (tables,) = found["temperatures"]
    assert tables["draft"]["as_run"]["hit_rate"] == 1
    assert tables["taps"][0]["tap"]["by_kappa"]["hit_rate"] == [1] * 4
    assert tables["rejected"] == 0
    assert tables["taps"][0]["hybrid"]["as_run"]["hit_rate_given_rejection"] is None
    assert found["exit_layer"] == 1


def test_the_pairs_own_options_are_measured(tmp_path):
    folder = models.pair(tmp_path)
    (folder / "pair.json").write_text('{"options": {"num_draft_tokens": 2, "kappa": 2, "max_roots": 6}}')
    setup = measure(Settings(str(folder), limit=1, max_tokens=8, temps=(0.0,), max_roots=5))["setup"]
    assert (setup["num_draft_tokens"], setup["kappa"], setup["max_roots"]) == (2, 2, 5)


def test_what_cannot_be_measured_is_said(folder, tmp_path):
    with pytest.raises(UsageError, match=r"exit_layers has 4: this model has 4 layers, so each must be in 1 … 3"):
        measure(Settings(str(folder), exit_layers=(1, 4), **FEW))
    with pytest.raises(DraftError, match="comes with no draft"):
        measure(Settings(str(folder / "target"), **FEW))
    with pytest.raises(ModelError, match="no step prepared a window"):
        measure(Settings(str(folder), limit=1, max_tokens=1))


def test_a_pair_keeps_its_tables_and_its_exit_layer(tmp_path):
    file = tmp_path / "pair.json"
    found = {"setup": {"model": "/home/me/pair", "draft_model": None, "prompts": "/home/me/asked.jsonl", "seed": 1}}
    found |= {"temperatures": [{"steps_by_row": [3, 4, None]}], "exit_layer": 2}
    write(file, found)
    assert json.loads(file.read_text())["options"] == {"exit_layer": 2}
    file.write_text('{"options": {"kappa": 4, "exit_layer": 7}, "about": "ours", "hits": 1}')
    write(file, found)
    kept = json.loads(file.read_text())
    assert kept["options"] == {"kappa": 4, "exit_layer": 2}
    assert kept["about"] == "ours"
    assert kept["hits"]["setup"] == {"prompts": "asked.jsonl", "seed": 1}
    assert kept["hits"]["exit_layer"] == 2
    assert '"steps_by_row": [ 3, 4, null ]' in file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["pair.json"]
    file.unlink()
    file.mkdir()
    with pytest.raises(MirrorError, match="cannot be written"):
        write(file, found)


def test_only_a_pair_has_a_file_to_keep_them_in(folder):
    assert pair_file(str(folder)) == folder / "pair.json"
    assert pair_file("demo").parent.name == "demo"
    for other in (folder / "target", "org/name", "/nowhere"):
        with pytest.raises(UsageError, match="write needs a pair"):
            pair_file(str(other))


def test_outcomes_are_those_of_the_records(folder):
    """The last word on what is recorded: ends that nobody prepares for are left out."""
    with Engine(MODEL, None, ScriptedDraft(lambda context: -1), num_draft_tokens=3) as engine:
        found = list(records(engine, PROMPT, 6, Sampling(), [TAP], depth=5))
    assert [record.window for record in found] == [()] * len(found), "nonsense is no window"
    assert all(isinstance(record.outcome, Outcome) for record in found)
    assert len(found) == 4
