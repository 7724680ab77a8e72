from layerdag.codec._program_order import missing_order


def test_communication_that_is_ordered_already_needs_no_edge():
    assert missing_order([[], [0], [1]], [True] * 3, [True, False, True]) == []


def test_independent_communication_is_chained_in_topological_order():
    added = missing_order([[], [], []], [True] * 3, [True, True, True])
    assert added == [(0, 1), (1, 2)]


def test_an_order_that_leads_through_another_class_does_not_count():
    # 0 -> 1 -> 2, but node 1 is run by another class of ranks.
    assert missing_order([[], [0], [1]], [True, False, True], [True, True, True]) == [(0, 2)]
