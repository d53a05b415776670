import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.messages import Outcome
from mirror_mlx.verify import shorten, verify

tokens = st.integers(0, 4)


@given(st.lists(tokens, max_size=8), st.data())
def test_emitted_tokens_are_the_targets_own(window, data):
    chosen = data.draw(st.lists(tokens, min_size=len(window) + 1, max_size=len(window) + 1))
    outcome = verify(window, chosen)
    emitted = [*window[: outcome.accepted], outcome.token]
    assert emitted == chosen[: len(emitted)]
    assert outcome.accepted == len(window) or window[outcome.accepted] != outcome.token


@given(st.lists(tokens, max_size=8), st.data(), st.sets(tokens), st.integers(1, 10))
def test_shortening_gives_a_prefix_that_ends_at_the_first_stop_or_the_limit(window, data, stops, limit):
    chosen = data.draw(st.lists(tokens, min_size=len(window) + 1, max_size=len(window) + 1))
    whole = verify(window, chosen)
    short = shorten(whole, window, stops, limit)
    before = [*window[: whole.accepted], whole.token]
    after = [*window[: short.accepted], short.token]
    assert after == before[: len(after)]
    assert not set(after[:-1]) & stops
    if len(after) < len(before):
        assert after[-1] in stops or len(after) == limit
    assert len(after) <= max(limit, 1) or whole == Outcome(short.accepted, short.token)


def test_a_row_count_that_does_not_fit_is_an_error():
    with pytest.raises(ValueError, match="3 target tokens"):
        verify([1, 2], [1, 2])
