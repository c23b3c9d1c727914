import itertools
import random

import pytest

from nodetracker.accounting.matching import KuhnMatching


def make_graph(seed):
    random_ = random.Random(seed)
    rights = range(random_.randint(1, 5))
    return {
        left: [
            random_.sample(rights, random_.randint(0, len(rights)))
            for _ in range(random_.randint(1, 2))
        ]
        for left in range(random_.randint(1, 5))
    }


def rights_of(graph, left):
    return set(itertools.chain(*graph[left]))


def has_whole_matching(graph, lefts):
    return any(
        len(set(rights)) == len(rights)
        for rights in itertools.product(*(rights_of(graph, left) for left in lefts))
    )


@pytest.mark.parametrize("seed", range(200))
def test_a_vertex_is_added_whenever_it_can_be_matched_with_those_before_it(seed):
    graph = make_graph(seed)
    matching = KuhnMatching(graph)
    matched = []
    for left in graph:
        expected = has_whole_matching(graph, [*matched, left])
        assert matching.add(left) is expected
        if expected:
            matched.append(left)
        else:
            neighbours = set().union(*(rights_of(graph, one) for one in matching.visited))
            assert len(neighbours) < len(matching.visited)
        assert sorted(matching.left_of.values()) == matched
        assert all(right in rights_of(graph, one) for right, one in matching.left_of.items())


def test_a_left_vertex_may_be_matched_several_times():
    matching = KuhnMatching({"a": [[0, 1, 2]], "b": [[0, 1]]})
    assert [matching.add(left) for left in "aabb"] == [True, True, True, False]
    assert matching.left_of == {0: "b", 1: "a", 2: "a"}


def test_a_preferred_vertex_is_freed_before_a_free_one_of_a_later_tier_is_taken():
    matching = KuhnMatching({"a": [[0, 1]], "b": [[0], [1]]})
    assert matching.add("a")
    assert matching.add("b")
    assert matching.left_of == {0: "b", 1: "a"}


def test_a_free_vertex_of_the_same_tier_moves_nobody():
    matching = KuhnMatching({"a": [[0, 1]], "b": [[0, 1]]})
    assert matching.add("a")
    assert matching.add("b")
    assert matching.left_of == {0: "a", 1: "b"}
