"""Proposers that need no model: what they propose, and that nothing upsets them."""

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx import lookup
from mirror_mlx.errors import DraftError, UsageError
from mirror_mlx.lookup import NAMES, Combined, Datastore, Lookahead, PromptLookup, Proposer, TokenRecycling, by_name

FILES = sorted(Path(lookup.__file__).parent.glob("*.py"))
TOKEN = st.integers(0, 4)
TOKENS = st.lists(TOKEN, max_size=12)
STORE = Datastore.build([[0, 1, 2, 3, 4, 0, 1], [1, 2, 0, 0, 3]])


def every_proposer():
    made = [by_name(name, datastore=STORE) for name in NAMES]
    chosen = [Combined([by_name(name, datastore=STORE) for name in NAMES], choose) for choose in ("first", "longest")]
    return made + chosen


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_knows_errors_and_numpy_and_nothing_else(path):
    names = {node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in names if name and name.startswith("mirror_mlx")}
    assert all(name == "mirror_mlx.errors" or name.startswith("mirror_mlx.lookup") for name in ours)
    assert not {str(name).split(".")[0] for name in names} & {"mlx", "mlx_lm", "threading", "queue"}


@pytest.mark.parametrize("proposer", every_proposer(), ids=lambda proposer: proposer.name)
def test_each_is_a_proposer(proposer):
    assert isinstance(proposer, Proposer)


CALL = st.one_of(
    st.tuples(st.just("begin"), TOKENS),
    st.tuples(st.just("extend"), TOKENS),
    st.tuples(st.just("learn"), TOKENS, st.lists(st.lists(TOKEN, max_size=9), max_size=12)),
    st.tuples(st.just("propose"), st.integers(-1, 100)),
)


@given(st.lists(CALL, max_size=12))
def test_no_sequence_of_calls_upsets_any(calls):
    for proposer in every_proposer():
        for name, *given_ in calls:
            answer = getattr(proposer, name)(*given_)
            if name == "propose":
                assert len(answer) <= max(given_[0], 0)
                assert all(type(token) is int and 0 <= token <= 4 for token in answer)


@pytest.mark.parametrize("proposer", every_proposer(), ids=lambda proposer: proposer.name)
def test_arrays_do_as_well_as_lists(proposer):
    proposer.begin(np.array([0, 1, 2, 0, 1], np.int32))
    proposer.learn(np.array([1, 3]), np.array([[2] * 8, [4] * 8]))
    proposer.extend(np.array([2, 0], np.uint32))
    assert all(type(token) is int for token in proposer.propose(5))


def test_the_longest_ngram_goes_before_a_more_recent_shorter_one():
    lookup = PromptLookup(max_ngram=2)
    lookup.begin([1, 2, 7, 9, 2, 8, 1, 2])
    assert lookup.propose(2) == [7, 9]


def test_the_most_recent_of_equally_long_ones_is_copied():
    lookup = PromptLookup()
    lookup.begin([1, 5, 1, 6, 1])
    assert lookup.propose(1) == [6]
    lookup.extend([7, 1])
    assert lookup.propose(1) == [7]


def test_nothing_repeats_nothing_is_proposed():
    lookup = PromptLookup()
    lookup.begin([1, 2, 3])
    assert lookup.propose(5) == []
    lookup.begin([3])
    assert lookup.propose(5) == []  # what another request said is forgotten


def test_a_period_goes_on():
    lookup = PromptLookup()
    lookup.begin([1, 2, 3, 1, 2, 3, 1])
    assert lookup.propose(8) == [2, 3, 1, 2, 3, 1, 2, 3]


@given(st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=8), st.integers(1, 4), st.integers(0, 3))
def test_the_index_finds_what_a_search_of_the_whole_text_finds(parts, min_ngram, more):
    lookup = PromptLookup(min_ngram + more, min_ngram)
    lookup.begin([])
    text = []
    for part in parts:
        lookup.extend(part)
        text += part
        assert lookup.propose(6) == searched(text, min_ngram + more, min_ngram, 6)


def searched(text, max_ngram, min_ngram, length):
    for n in range(max_ngram, min_ngram - 1, -1):
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == text[-n:]:
                longer = list(text)
                while len(longer) < len(text) + length:
                    longer.append(longer[start + n + len(longer) - len(text)])
                return longer[len(text) :]
    return []


def test_recycling_follows_the_likeliest_and_stays_for_the_next_request():
    recycling = TokenRecycling(k=2)
    recycling.begin([1])
    assert recycling.propose(3) == []
    recycling.learn([1, 2, 3], [[2, 9, 8], [3, 9, 8], [1, 9, 8]])
    recycling.extend([2])
    assert recycling.propose(4) == [3, 1, 2, 3]
    assert recycling.successors[1] == (2, 9)
    recycling.begin([7, 3])
    assert recycling.propose(2) == [1, 2]


def test_recycling_takes_the_last_word_of_the_target():
    recycling = TokenRecycling(k=1)
    recycling.learn([1, 1], [[5], [6]])
    recycling.begin([1])
    assert recycling.propose(1) == [6]


def test_lookahead_proposes_what_rejected_rows_said():
    lookahead = Lookahead(ngram=3)
    lookahead.begin([1])
    lookahead.learn([1, 50, 51, 52], [[2], [3], [4], [5]])
    lookahead.extend([2])
    assert lookahead.propose(2) == [3, 4]
    assert lookahead.propose(9) == [3, 4]  # no n-gram of three begins with 4
    lookahead.learn([2, 3, 4, 53], [[3], [4], [5], [6]])
    lookahead.extend([3, 4, 5])
    assert lookahead.propose(9) == []
    lookahead.begin([2])
    assert lookahead.propose(9) == []


def test_lookahead_believes_the_text_before_a_trajectory():
    lookahead = Lookahead(ngram=2)
    lookahead.begin([1, 2, 3])
    lookahead.learn([3, 1, 1], [[1], [9], [9]])
    lookahead.extend([1])
    assert lookahead.propose(3) == [2, 3, 1]
    lookahead.extend([4])
    lookahead.begin([1, 2, 1])
    assert lookahead.propose(3) == [2, 1, 2]


def test_lookahead_may_leave_the_prompt_out():
    lookahead = Lookahead(ngram=2, from_prompt=False)
    lookahead.begin([1, 2, 1])
    assert lookahead.propose(3) == []
    lookahead.extend([3, 1])
    assert lookahead.propose(3) == [3, 1, 3]


def test_the_first_that_knows_something_answers_or_the_longest():
    for choose, answer in (("first", [5]), ("longest", [2, 1, 2])):
        both = Combined([PromptLookup(min_ngram=2), TokenRecycling(k=1), PromptLookup(max_ngram=1)], choose)
        assert both.wants == 1
        both.begin([1, 2, 1])
        both.learn([1], [[5, 6]])
        assert both.propose(3) == answer
    assert both.name == "lookup+recycle+lookup"


def test_each_is_told_as_much_as_it_wants():
    eight, one = TokenRecycling(k=8), TokenRecycling(k=1)
    both = Combined([one, eight, PromptLookup()])
    assert both.wants == 8
    both.learn([1], [list(range(8))])
    assert (one.successors, eight.successors) == ({1: (0,)}, {1: tuple(range(8))})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: PromptLookup(1, 2), "min_ngram is 2 and max_ngram 1"),
        (lambda: PromptLookup(3, 0), "min_ngram is 0"),
        (lambda: TokenRecycling(0), "k is 0: it must be 1 or more"),
        (lambda: Lookahead(1), "ngram is 1: it must be 2 or more"),
        (lambda: lookup.Retrieval(STORE, 2, 3), "min_ngram is 3 and max_ngram 2"),
        (lambda: lookup.Retrieval(STORE, 65), "max_ngram is 65: this datastore is sorted by 64 tokens"),
        (lambda: lookup.Retrieval(STORE, samples=0), "samples is 0"),
        (lambda: Combined([]), "nothing to combine"),
        (lambda: Combined([PromptLookup()], "best"), "choose is 'best'"),
        (lambda: by_name("rest"), "there is no proposer 'rest': choose from lookup, recycle, lookahead, retrieve"),
        (lambda: by_name("retrieve"), "retrieve needs a datastore: make one with 'mirror-mlx datastore'"),
    ],
)
def test_a_mistake_says_what_is_possible(make, said):
    with pytest.raises(UsageError, match=said) as error:
        make()
    assert "\n" not in str(error.value)


def test_names_lead_to_proposers(tmp_path):
    assert [by_name(name, datastore=STORE).name for name in NAMES] == list(NAMES)
    STORE.save(tmp_path / "store")
    assert by_name("retrieve", datastore=tmp_path / "store").store.documents == 2
    assert by_name("retrieve", datastore=STORE, tokenizer="").store is STORE
    for datastore in (STORE, str(tmp_path / "store")):
        with pytest.raises(DraftError, match="made with another tokenizer"):
            by_name("retrieve", datastore=datastore, tokenizer="0123")
