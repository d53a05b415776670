from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.messages import Window
from mirror_mlx.speculation import SpeculationCache


@given(
    st.integers(0, 6),
    st.lists(st.lists(st.integers(-2, 12), max_size=3), max_size=10),
    st.frozensets(st.integers(0, 9), max_size=2),
)
def test_windows_hold_only_the_targets_tokens_and_end_with_the_text(length, passes, stops):
    cache = SpeculationCache(length, 10, stops)
    cache.open((0, 1))
    flat = []
    for proposed in passes:
        if (0, 1) in cache.unfinished:
            flat += proposed or [-1]
            cache.extend((0, 1), proposed)
    wrong = next((i for i, token in enumerate(flat) if not 0 <= token < 10), len(flat))
    end = next((i + 1 for i, token in enumerate(flat) if token in stops), len(flat))
    assert cache.get((0, 1)) == tuple(flat[: min(wrong, end, length)])


def test_what_lies_beyond_a_window_is_kept_unless_the_text_ends_with_it():
    cache = SpeculationCache(3, 10, stops={9})
    for key in ((0, 1), (0, 2), (0, 3)):
        cache.open(key)
    cache.extend((0, 1), [4, 5], guesses=[6])
    assert cache.window((0, 1), "partial").beyond == (6,)
    cache.extend((0, 1), [6, 7], guesses=[8])
    assert cache.window((0, 1), "hit").beyond == (7, 8)
    cache.extend((0, 2), [4, 9, 5], guesses=[6])
    assert cache.window((0, 2), "hit") == Window((4, 9), "hit")
    assert cache.window((0, 3), "jit").beyond == ()


def test_a_miss_is_none_and_a_window_without_length_is_finished_at_once():
    cache = SpeculationCache(0, 10)
    assert cache.get((0, 1)) is None
    assert not cache.finished((0, 1))
    cache.open((0, 1))
    assert cache.finished((0, 1))
    assert cache.get((0, 1)) == ()


def test_opening_twice_keeps_what_is_there():
    cache = SpeculationCache(3, 10)
    cache.open((0, 1))
    cache.extend((0, 1), [4])
    cache.open((0, 1))
    assert cache.get((0, 1)) == (4,)
    assert cache.unfinished == ((0, 1),)


def test_passes_are_counted_by_window():
    cache = SpeculationCache(length=4, vocab_size=9)
    cache.open((0, 1))
    cache.open((0, 2))
    for tokens in ([3], [4, 5], [6, 7]):
        cache.extend((0, 1), tokens)
    assert [cache.passes(key) for key in ((0, 1), (0, 2), (0, 3))] == [3, 0, 0]
    assert cache.window((0, 1), "hit").tokens == (3, 4, 5, 6)


def test_a_window_knows_how_many_proposals_of_streams_held_also_beyond_its_end():
    cache = SpeculationCache(length=4, vocab_size=9)
    cache.open((0, 1))
    for tokens in ([3], [4, 5], [6, 7, 8]):
        cache.extend((0, 1), tokens)
    window = cache.window((0, 1), "hit")
    assert (window.tokens, window.beyond, window.checked) == ((3, 4, 5, 6), (7, 8), (2, 3))
    assert window.cut(1).checked == (2, 3)
