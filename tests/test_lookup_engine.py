"""Proposers in the engine: as the draft and as the fallback. Whatever they propose, the output is plain decoding's."""

import json

import pytest
import zoo
from hypothesis import given
from hypothesis import strategies as st
from models import pair, save_tiny
from test_engine import MODEL, PROMPT, decode, rows_cost, scripted

import mirror_mlx
from mirror_mlx import Engine, Sampling
from mirror_mlx.ahead import Offers
from mirror_mlx.cli.main import main
from mirror_mlx.errors import DraftError, UsageError
from mirror_mlx.lookup import NAMES, Datastore, PromptLookup, Retrieval, by_name, fingerprint
from mirror_mlx.tuning.governor import Governor

PLAIN = decode(mode="ar")[0]


class Oracle:
    """Knows what follows; counts what it is told."""

    name, wants = "oracle", 3

    def __init__(self, answer):
        self.answer, self.text, self.learnt = answer, [], []

    def begin(self, tokens):
        self.text = list(tokens)

    def extend(self, tokens):
        self.text += tokens

    def learn(self, rows, likely):
        self.learnt.append((list(rows), likely))

    def propose(self, length):
        done = len(self.text) - len(PROMPT)
        return self.answer[done : done + length]


def test_a_proposer_that_knows_the_answer():
    oracle = Oracle(PLAIN)
    said, stats, responses = decode(draft=oracle, mode="sd", num_draft_tokens=4)
    assert said == PLAIN
    assert oracle.text == PROMPT + PLAIN
    assert (stats.mode, stats.reason) == ("sd", "")
    assert stats.tokens_per_step > 4
    assert stats.steps == len(oracle.learnt)
    assert [response.origin for response in responses].count("draft") == stats.accepted
    for rows, likely in oracle.learnt:
        assert len(rows) == len(likely)
        assert all(len(row) == 3 for row in likely)
    assert oracle.learnt[0][1][0][0] == PLAIN[0]  # the likeliest is what greedy decoding takes


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", NAMES)
def test_each_as_draft_and_as_fallback(name, temperature):
    sampling = Sampling(temperature=temperature, seed=2)
    expected = decode(mode="ar", sampling=sampling, count=60)[0]
    store = Datastore.build([PROMPT + expected, expected[10:]])
    proposer = by_name(name, datastore=store)
    said, stats, _ = decode(draft=proposer, mode="sd", sampling=sampling, count=60)
    assert said == expected
    assert stats.mode == "sd"
    if name == "retrieve":
        assert stats.tokens_per_step > 3
    again, _, _ = decode(draft=proposer, mode="mirror", sampling=sampling, count=60)
    assert again == expected
    if name != "retrieve":
        draft = scripted(expected, 0.3)
        said, stats, _ = decode(
            draft=draft, mode="mirror", predictor="draft", fallback=name, sampling=sampling, count=60
        )
        assert said == expected
        assert (stats.mode, stats.reason) == ("mirror", "")


def test_misses_are_proposed_for():
    """A draft that is never right: every window that holds anything comes from the oracle."""
    with Engine(MODEL, None, scripted([], 0.0), mode="mirror", predictor="draft", fallback="lookup") as engine:
        engine._proposer = Oracle(PLAIN)
        assert [r.token for r in engine.stream(PROMPT, 30)] == PLAIN
        sources = [step.next for step in engine.trace.steps]
        assert sources.count("lookup") > 0
        assert all(step.outcome.accepted for step in engine.trace.steps if step.window.source == "lookup")


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=120),
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=12),
)
def test_what_a_lookup_would_have_proposed_is_compared_with_the_text(text, steps):
    """However many tokens it goes on by in between, and though plain decoding ends and begins again."""
    lookup = PromptLookup()
    lookup.begin(text[:1])
    offers, done, found, windows = Offers(lookup), 1, [], {}

    class Watched:
        def propose(self, length):
            told = len(lookup._text)
            assert lookup._text == text[:told]
            windows[told] = lookup.propose(length)  # again where what had come by then was too little
            return windows[told]

        def extend(self, tokens):
            lookup.extend(tokens)

    offers._proposer = Watched()
    offers.begin(1)
    begun = [1]
    for step, ends in steps:
        done = min(done + step, len(text))
        if ends:
            offers.follow(text[:done], ends=True)
            assert lookup._text == text[:done]
        found += offers.take(text[:done])
        if ends:
            offers.begin(done)
            begun.append(done)
    expected, ended, row = [], None, -32
    for at, window in windows.items():
        held = next((i for i, one in enumerate(window) if at + i >= len(text) or one != text[at + i]), len(window))
        over = done > at + held and not any(at < place <= at + held for place in begun)
        if at >= row + 32:
            row = at
        elif over and at == ended and at not in begun:
            expected.append((len(window), held))
        ended = at + held + 1 if over else None
    assert found == expected


def test_amid_plain_decoding_it_is_seen_what_a_lookup_would_have_had(monkeypatch):
    """In half of the text, beside a draft that is worth nothing; without a draft it is what is tried."""
    rows_cost(monkeypatch)
    told = []
    monkeypatch.setattr(
        Governor, "plained", lambda self, fact, was=Governor.plained: told.extend(fact.offers) or was(self, fact)
    )
    expected, asked = decode(mode="ar", count=100)[0], []

    class Knows(Oracle):
        def propose(self, length):
            asked.append(length)
            return super().propose(length)

    with Engine(MODEL, None, scripted([], 0.0), mode="auto", predictor="draft") as engine:
        engine._proposer = Knows(expected)
        monkeypatch.setattr(Governor, "_choose", lambda *args, **kwargs: False)
        assert [one.token for one in engine.stream(PROMPT, 100)] == expected
        assert engine.stats.tokens_by_mode == {"ar": 100}
    assert told == [(6, 6)] * 6
    assert set(asked) == {6}
    assert decode(draft=Knows(expected), mode="auto", count=100)[0] == expected
    assert len(told) == 6


def test_a_wrong_proposer_is_given_up_in_mode_auto(monkeypatch):
    rows_cost(monkeypatch)

    class Wrong(Oracle):
        def propose(self, length):
            return [(self.answer[len(self.text) - len(PROMPT)] + 1) % zoo.VOCAB]

    expected = decode(mode="ar", count=80)[0]
    said, stats, _ = decode(draft=Wrong(expected), mode="auto", count=80)
    assert said == expected
    assert stats.tokens_by_mode["ar"] > 60
    silent = PromptLookup(max_ngram=9, min_ngram=9)
    said, _, _ = decode(draft=silent, mode="auto", count=80)
    assert said == expected


def test_windows_that_adapt():
    lengths = []

    class Half(Oracle):
        """Right in the first half of the answer, wrong after it."""

        def propose(self, length):
            lengths.append(length)
            done = len(self.text) - len(PROMPT)
            right = self.answer[done : done + length]
            return right if done < 30 else [(token + 1) % zoo.VOCAB for token in right]

    expected = decode(mode="ar", count=60)[0]
    assert decode(draft=Half(expected), mode="sd", adaptive=True, num_draft_tokens=9, count=60)[0] == expected
    assert lengths[:3] == [5, 7, 9]
    assert max(lengths) == 9
    assert lengths[-3:] == [1, 1, 1] or lengths[-1] < lengths[-2] <= 9


def test_by_name_and_with_a_datastore_of_its_own_tokenizer(tmp_path):
    folder = pair(tmp_path / "pair", says="abcdefgh.")
    message = [{"role": "user", "content": "count"}]
    with mirror_mlx.load(folder, mode="ar") as engine:
        expected, tokenizer = engine.generate(message, max_tokens=24), engine.tokenizer
    for name in ("lookup", "recycle", "lookahead"):
        with mirror_mlx.load(folder, name, mode="sd") as engine:
            assert engine.generate(message, max_tokens=24) == expected
            assert engine.stats.mode == "sd"
    store = Datastore.build([tokenizer.encode(expected)], tokenizer=fingerprint(tokenizer.get_vocab()))
    store.save(tmp_path / "store")
    with mirror_mlx.load(folder, "retrieve", mode="sd", datastore=str(tmp_path / "store")) as engine:
        assert isinstance(engine._proposer, Retrieval)
        assert engine.generate(message, max_tokens=24) == expected
    Datastore.build([[1, 2, 3]], tokenizer="another").save(tmp_path / "other")
    with pytest.raises(DraftError, match="tokenizer"):
        mirror_mlx.load(folder, "retrieve", datastore=str(tmp_path / "other"))
    with pytest.raises(UsageError, match="datastore"):
        mirror_mlx.load(folder, fallback="retrieve")


def test_on_the_command_line(tmp_path, capsys):
    folder = save_tiny(tmp_path / "target")
    words = ["generate", "--model", str(folder), "-p", "abcabcabc", "-m", "20", "--json"]
    said = []
    for more in (["--mode", "ar"], ["--draft-model", "lookup"], ["--draft-model", "recycle", "--adaptive"]):
        assert main([*words, *more]) == 0
        said.append(json.loads(capsys.readouterr().out)["tokens"])
    assert said[0] == said[1] == said[2]
    assert main([*words, "--draft-model", "retrieve"]) == 2
    assert "mirror-mlx datastore" in capsys.readouterr().err
