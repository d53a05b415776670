"""The streaming draft: flattened rollouts against passes of each branch alone, exact mode, and in the engine."""

import random
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
import streams
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st
from models import VOCAB

import mirror_mlx
from mirror_mlx.bench.peers import view
from mirror_mlx.draft import Draft, StreamingDraft
from mirror_mlx.draft.protocol import Streaming, joining, streaming
from mirror_mlx.draft.streaming import MlxSegments
from mirror_mlx.draft.streaming.draft import SHARP
from mirror_mlx.draft.streaming.layout import Feed, lay_out
from mirror_mlx.errors import UsageError
from mirror_mlx.messages import Root
from mirror_mlx.ranking import rank
from mirror_mlx.sampling import Sampler, Sampling

CONTEXT = [(i * 7 + 3) % VOCAB for i in range(24)]


def whole(model, logits):
    """Logits over all of the vocabulary."""
    ids = model.token_ids
    if ids is None:
        return logits
    full = mx.full((logits.shape[0], VOCAB), -mx.inf)
    full[:, ids] = logits
    return full


def one_by_one(model, sampler, context, count):
    """The main stream, decoded plainly."""
    tokens = list(context)
    for _ in range(count):
        tokens.append(sampler.choose(whole(model, model(mx.array([tokens]))[0, -1:]), [len(tokens)]).item())
    return tokens[len(context) :]


def trusted(model, sampler, context, passes, count):
    """Main and sharpened streams of the last token, `passes` times, by forwards over the whole text."""
    tokens = list(context)
    for _ in range(passes):
        main, ahead = model(mx.array([tokens]), count)
        rows = mx.concatenate([main[0, -1:], SHARP * ahead[:, 0, -1]])
        tokens += sampler.choose(whole(model, rows), [len(tokens) + j for j in range(count + 1)]).tolist()
    return tokens[len(context) :]


def rollout(draft, context, window, roots, passes, candidates=0):
    draft.glue([context[-1], *window], candidates)
    draft.expand(roots)
    found = {root.key: [] for root in roots}
    for _ in range(passes):
        for key, tokens in draft.advance(list(found)).items():
            found[key] += tokens
    return found


@pytest.mark.parametrize("shape", streams.SHAPES)
@pytest.mark.parametrize("exact", [False, True], ids=["trust", "exact"])
@given(data=st.data())
@settings(max_examples=4)
def test_branches_propose_what_they_would_alone(shape, exact, data):
    model = streams.tiny(streams.SHAPES[shape])
    sampling = Sampling(temperature=data.draw(st.sampled_from([0.0, 1.0])), seed=5)
    count = data.draw(st.integers(1, model.config.streams))
    draft = StreamingDraft(MlxSegments(model), streams=count, exact=exact)
    draft.begin(sampling)
    context = CONTEXT[: data.draw(st.integers(1, 12))]
    draft.prefill(context[:-1])
    token = st.integers(0, VOCAB - 1)
    for _ in range(2):
        window = data.draw(st.lists(token, max_size=4))
        keys = data.draw(st.sets(st.tuples(st.integers(0, len(window)), token), min_size=1, max_size=5))
        passes = data.draw(st.integers(1, 3))
        roots = [Root(*key) for key in keys]
        found = rollout(draft, context, window, roots, passes, data.draw(st.sampled_from([0, 3])))
        for (row, first), tokens in found.items():
            before = [*context, *window[:row], first]
            if exact:
                assert passes <= len(tokens) <= passes * (1 + count)
                assert tokens == one_by_one(model, Sampler(sampling), before, len(tokens))
            else:
                assert tokens == trusted(model, Sampler(sampling), before, passes, count)
        kept = data.draw(st.integers(0, len(window)))
        draft.commit(kept + 1)
        context = [*context, *window[:kept], data.draw(token)]
    draft.close()


@pytest.mark.parametrize("exact", [False, True], ids=["trust", "exact"])
@given(data=st.data())
@settings(max_examples=8)
def test_one_pass_over_rows_and_a_branch_says_what_two_would(exact, data):
    model = streams.tiny()
    count, token = data.draw(st.integers(1, model.config.streams)), st.integers(0, VOCAB - 1)
    sampling = Sampling(temperature=data.draw(st.sampled_from([0.0, 1.0])), seed=5)
    window, after = data.draw(st.lists(token, max_size=4)), data.draw(st.lists(token, max_size=3))
    root, named = Root(len(window), data.draw(token)), data.draw(st.sampled_from([0, 3]))
    before = [*CONTEXT[:9], *window, root.token]
    if exact and data.draw(st.booleans()):  # what it is taken to begin with is right
        after = one_by_one(model, Sampler(sampling), before, 2)
    drafts = [StreamingDraft(MlxSegments(model), streams=count, exact=exact) for _ in range(2)]
    for draft in drafts:
        draft.begin(sampling)
        draft.prefill(CONTEXT[:8])
    joint, apart = drafts
    said, found = joint.join([CONTEXT[8], *window], named, root, after)
    alone = apart.glue([CONTEXT[8], *window], named)
    assert (said is None) == (alone is None)
    if said is not None and alone is not None:
        assert (said.tokens, len(said.own)) == (alone.tokens, len(window))
        assert np.allclose(said.probs, alone.probs, atol=1e-4)
        assert np.allclose(said.own, alone.own, atol=1e-4)
    tokens = list(found[root.key])
    tokens += joint.advance([root.key])[root.key]
    if exact:
        assert tokens == one_by_one(model, Sampler(sampling), before, len(tokens))
        assert len(joint.guesses[root.key]) == count
    else:
        assert tokens == trusted(model, Sampler(sampling), before, 2, count)
    other = Root(0, data.draw(token))
    for draft in drafts:
        draft.expand([other])
    if other.key != root.key:
        assert joint.advance([other.key]) == apart.advance([other.key])
    for draft in drafts:
        draft.commit(1)
        draft.close()


def test_a_draft_that_lacks_the_expected_token_only_glues():
    draft = StreamingDraft(MlxSegments(streams.tiny()), exact=True)
    draft.prefill(CONTEXT[:8])
    said, found = draft.join(CONTEXT[8:10], 3, Root(1, VOCAB + 5))
    assert len(said.tokens) == 2
    assert found == {}
    draft.commit(1)
    found = draft.join(CONTEXT[9:11], 0, Root(1, 5), [4, VOCAB + 5])[1]
    assert 1 <= len(found[1, 5]) <= 2
    draft.close()


def test_a_pass_that_has_no_room_for_a_branch_beside_the_rows_is_not_asked_for_both():
    class Small(MlxSegments):
        def __init__(self, model, columns):
            super().__init__(model)
            self.columns = columns

    model = streams.tiny()
    for exact, columns, rows in ((False, (8, 12), 7), (False, (8, 10), 6), (True, (12, 32), 8), (True, (16, 24), 8)):
        draft = StreamingDraft(Small(model, columns), exact=exact)
        assert draft.joins(rows)
        assert not draft.joins(rows + 1)
        assert joining(draft, rows) is draft
        assert joining(draft, rows + 1) is None
        draft.close()


@pytest.mark.parametrize("shape", streams.SHAPES)
def test_a_flattened_pass_gives_the_logits_of_independent_passes(shape):
    model = streams.tiny(streams.SHAPES[shape])
    count = model.config.streams
    segments = MlxSegments(model)
    segments.prefill(CONTEXT[:9])
    texts = [[*CONTEXT[:9], 4, 5], [*CONTEXT[:7], 8], [*CONTEXT[:9], 6, 1, 2]]
    feeds = [Feed(9, [], [4, 5], "every"), Feed(7, [], [8]), Feed(9, [], [6, 1, 2])]
    layout = lay_out(feeds, segments.used, count)
    given = segments.run(layout, range(len(layout.stream))).logits
    for text, feed, mains, placed in zip(texts, feeds, layout.mains, layout.streams, strict=True):
        main, ahead = model(mx.array([text]), count)
        first = len(text) - len(feed.tokens)
        assert np.abs(given[mx.array(list(mains))] - main[0, first:]).max() <= 1e-4
        for place, rows in enumerate(placed):
            if rows:
                assert np.abs(given[mx.array(list(rows))] - ahead[:, 0, first + place]).max() <= 1e-4


def test_the_main_stream_does_not_change_when_streams_are_on():
    model = streams.tiny()
    plain = model(mx.array([CONTEXT]))
    for count in (1, 2, 3):
        assert mx.array_equal(model(mx.array([CONTEXT]), count)[0], plain)


def test_a_stream_sees_no_later_stream():
    model = streams.tiny()
    _, three = model(mx.array([CONTEXT]), 3)
    _, one = model(mx.array([CONTEXT]), 1)
    assert mx.allclose(three[0], one[0], atol=1e-5)


def test_exact_mode_says_what_its_main_stream_would_in_5000_tokens():
    model = streams.agreeing(vocab_size=24)
    told, different, lengths = 0, 0, []
    for seed, temperature in pairwise([*range(11), 0]):
        sampling = Sampling(temperature=0.3 * (seed % 3) * (temperature > 0), seed=seed)
        draft = StreamingDraft(MlxSegments(model), exact=True)
        draft.begin(sampling)
        context = [token % 24 for token in random.Random(seed).choices(range(24), k=8)]
        draft.prefill(context[:-1])
        draft.glue(context[-1:], 0)
        draft.expand([Root(0, 5)])
        said = []
        while len(said) < 500:
            passed = draft.advance([(0, 5)])[0, 5]
            lengths.append(len(passed))
            said += passed
        wanted = one_by_one_cached(model, Sampler(sampling), [*context, 5], len(said))
        different += sum(a != b for a, b in zip(said, wanted, strict=True))
        told += len(said)
        draft.close()
    assert told >= 5000
    assert different == 0
    assert max(lengths) > 1


def one_by_one_cached(model, sampler, context, count):
    segments = MlxSegments(model)
    segments.prefill(context[:-1])
    said = [context[-1]]
    while len(said) <= count:
        layout = lay_out([Feed(segments.used, [], said[-1:], "none")], segments.used, 0)
        logits = segments.run(layout, [0]).logits
        said.append(sampler.choose(logits, [segments.used]).item())
    return said[1:]


def test_glue_ranks_what_the_main_stream_says():
    for shape in streams.SHAPES.values():
        model = streams.tiny(shape)
        draft = StreamingDraft(MlxSegments(model))
        draft.prefill(CONTEXT[:5])
        found = draft.glue(CONTEXT[5:9], 3)
        wanted = rank(whole(model, model(mx.array([CONTEXT[:9]]))[0, 5:]), CONTEXT[6:9], 3).read()
        assert found.tokens == wanted.tokens
        np.testing.assert_allclose(found.own, wanted.own, atol=1e-5)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.sampled_from(["none", "last", "every"])), min_size=1,
                max_size=5), st.integers(0, 3))  # fmt: skip
def test_a_layout_has_every_row_once_and_streams_see_their_main(specs, count):
    feeds = [Feed(trunk, [], list(range(size)), kind) for trunk, size, kind in specs]
    layout = lay_out(feeds, 4, count)
    rows = [row for mains in layout.mains for row in mains]
    rows += [row for placed in layout.streams for own in placed for row in own]
    assert sorted(rows) == list(range(len(layout.stream)))
    assert layout.second.mask[: len(layout.tokens), : layout.first.mask.shape[1]].tolist() == layout.first.mask.tolist()
    for row in rows[len(layout.tokens) :]:
        main = layout.source[row]
        assert layout.second.mask[row].sum() == layout.second.mask[main].sum() + layout.stream[row]
        assert layout.second.positions[row] == layout.second.positions[main] + layout.stream[row]


@pytest.mark.parametrize("exact", [False, True], ids=["trust", "exact"])
def test_the_engine_says_what_the_target_would_where_the_draft_knows_what_comes_next(exact):
    model, asked, guessed = streams.agreeing(vocab_size=24), [], []

    class Counted(StreamingDraft):
        def join(self, tokens, candidates, root, after=()):
            asked.append(root)
            return super().join(tokens, candidates, root, after)

    options = {"num_draft_tokens": 3, "stream_mode": "exact" if exact else "trust"}
    for seed in range(6):
        prompt = [token % 24 for token in random.Random(seed).choices(range(24), k=8)]
        sampling = Sampling(temperature=0.4 * (seed % 2), seed=seed)
        with mirror_mlx.Engine(view(model.tracks[0]), mode="ar") as engine:
            wanted = [r.token for r in engine.stream(prompt, 80, sampling)]
        with mirror_mlx.Engine(view(model.tracks[0]), draft=Counted(MlxSegments(model)), **options) as engine:
            assert [r.token for r in engine.stream(prompt, 80, sampling)] == wanted
            steps = engine.trace.steps
            guessed += [step.next for step in steps if step.guessed]
    assert len(asked) > 50
    assert guessed.count("hit") + guessed.count("partial") > 10


@given(seed=st.integers(0, 50), gamma=st.integers(1, 8), exact=st.booleans(), temperature=st.sampled_from([0.0, 0.8]))
@settings(max_examples=15)
def test_the_engine_says_what_the_target_would(seed, gamma, exact, temperature):
    target = zoo.tiny("qwen3")
    model = streams.tiny(vocab_size=zoo.VOCAB, seed=seed)
    prompt = [token % zoo.VOCAB for token in CONTEXT]
    sampling = Sampling(temperature=temperature, seed=seed)
    with mirror_mlx.Engine(target, mode="ar") as engine:
        wanted = [r.token for r in engine.stream(prompt, 30, sampling)]
    draft = StreamingDraft(MlxSegments(model))
    options = {"num_draft_tokens": gamma, "streams": seed % 4, "stream_mode": "exact" if exact else "trust"}
    with mirror_mlx.Engine(target, draft=draft, kappa=2, **options) as engine:
        assert [r.token for r in engine.stream(prompt, 30, sampling)] == wanted
        assert engine.stats.mode == "mirror"
        assert not engine.stats.reason
        assert (draft.streams, draft.exact) == (seed % 4, exact)


def test_it_is_a_draft_and_says_how_many_streams_it_has():
    draft = StreamingDraft(MlxSegments(streams.tiny()))
    assert isinstance(draft, Draft)
    assert isinstance(draft, Streaming)
    assert streaming(draft) is draft
    with pytest.raises(UsageError, match="streams is 4: this draft was trained with 3"):
        draft.use(4)
    with pytest.raises(ValueError, match="outside the draft's vocabulary"):
        draft.prefill([VOCAB])


def test_streams_of_a_draft_without_them_are_refused():
    script = mirror_mlx.draft.ScriptedDraft(lambda context: 0)
    with pytest.raises(UsageError, match="no lookahead streams"):
        mirror_mlx.Engine(zoo.tiny("qwen3"), draft=script, streams=2)


@pytest.mark.parametrize(
    ("length", "count", "expected"),
    [(7, 2, [1, 3, 3]), (7, 3, [4, 4]), (7, 1, [2, 2, 2, 2]), (6, 2, [3, 3]), (2, 3, [2]), (None, 2, [3, 3, 3])],
)
def test_a_window_that_passes_do_not_divide_begins_with_the_short_one(length, count, expected):
    draft = StreamingDraft(MlxSegments(streams.tiny()))
    draft.use(count, length=length)
    draft.begin(Sampling())
    draft.prefill(CONTEXT[:9])
    draft.glue([3, 4], 0)
    draft.expand([Root(1, 5), Root(0, 6)])
    keys, found = [(1, 5), (0, 6)], []
    for _ in expected:
        said = draft.advance(keys)
        assert len(said[keys[0]]) == len(said[keys[1]])
        found.append(len(said[keys[0]]))
    assert found == expected
    draft.close()


@pytest.mark.skipif(mx.default_device() != mx.Device(mx.cpu), reason="a GPU takes any number of rows")
def test_on_a_cpu_a_pass_takes_as_many_branches_as_are_worth_it():
    draft = StreamingDraft(MlxSegments(streams.tiny()))
    trust = draft.width
    draft.use(None, exact=True)
    exact = draft.width
    draft.use(0)
    assert exact < trust < draft.width
    assert exact * (1 + draft._segments.streams) ** 2 <= draft._segments.rows
