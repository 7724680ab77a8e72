"""Which operators stand around a launch, by hand and against a slow search."""

import pytest

from layerdag.traces.pytorch.device._kineto import Event, Profile
from layerdag.traces.pytorch.device._launches import Launch, find_launches, is_wait


def span(name: str, start: int, end: int, lane: object = 1, **args: object) -> Event:
    return Event(name, "cpu_op", start, end, (lane,), args)


def call(number: int, start: int, name: str = "cudaLaunchKernel", lane: object = 1) -> Event:
    return Event(name, "cuda_runtime", start, start + 2, (lane,), {"correlation": number})


def work(number: int, start: int, **args: object) -> Event:
    return Event("gemm", "kernel", start, start + 5, (0, 7), {"correlation": number, **args})


def profile(operators: list[Event], calls: list[Event], kernels: list[Event]) -> Profile:
    by_start = [sorted(group, key=lambda e: (e.start, -e.end)) for group in (operators, calls)]
    return Profile(tuple(by_start[0]), tuple(by_start[1]), tuple(kernels))


def test_the_open_operators_of_the_thread_stand_around_a_call_outermost_first():
    operators = [
        span("outer", 0, 100),
        span("first", 10, 20),
        span("second", 30, 60),
        span("inner", 35, 50),
        span("elsewhere", 0, 100, lane=2),
    ]
    (launch,) = find_launches(profile(operators, [call(1, 40)], [work(1, 60)]))
    assert [op.name for op in launch.operators] == ["outer", "second", "inner"]
    assert launch.kernels == (0,)


@pytest.mark.parametrize(("start", "expected"), [(9, []), (10, ["a"]), (19, ["a"]), (20, [])])
def test_an_operator_is_open_from_its_start_until_before_its_end(start, expected):
    (launch,) = find_launches(profile([span("a", 10, 20)], [call(1, start)], [work(1, 60)]))
    assert [op.name for op in launch.operators] == expected


def test_one_call_may_start_several_kernels_and_others_start_none():
    calls = [call(1, 0), call(2, 10), call(3, 20, name="cudaGetDevice")]
    found = find_launches(profile([], calls, [work(2, 5), work(1, 6), work(2, 7)]))
    assert [(launch.call.start, launch.kernels) for launch in found] == [(0, (1,)), (10, (0, 2))]


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaDeviceSynchronize", True),
        ("cudaStreamSynchronize", True),
        ("hipEventSynchronize", True),
        ("cudaLaunchKernel", False),
    ],
)
def test_calls_that_wait_are_kept_although_they_start_nothing(name, waits):
    assert is_wait(call(9, 0, name)) is waits
    found = find_launches(profile([], [call(9, 0, name)], []))
    assert len(found) == waits


def test_a_call_without_correlation_starts_nothing_although_a_kernel_has_none_either():
    wait = call(0, 10, "cudaDeviceSynchronize")
    (found,) = find_launches(profile([], [wait], [work(0, 0)]))
    assert found.kernels == ()


def test_where_threads_are_numbered_otherwise_the_external_id_tells_the_operator():
    operators = [span("aten::mm", 0, 100, lane="profiler", **{"External id": 5})]
    kernels = [work(1, 60, **{"External id": 5}), work(2, 70, **{"External id": 6})]
    known, unknown = find_launches(profile(operators, [call(1, 40), call(2, 41)], kernels))
    assert [op.name for op in known.operators] == ["aten::mm"]
    assert unknown.operators == ()


def test_a_kernel_without_external_id_is_not_given_to_an_operator_without_one():
    operators = [span("aten::mm", 0, 100, lane="profiler")]
    (launch,) = find_launches(profile(operators, [call(1, 40)], [work(1, 60)]))
    assert launch.operators == ()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["aten::linear", "aten::addmm", "aten::copy_"], "aten::addmm"),
        (["autograd::engine", "aten::mm"], "aten::mm"),
        (["torch::autograd::AccumulateGrad", "aten::add_"], "aten::add_"),
        (["my::op", "aten::mm"], "my::op"),
        (["Optimizer.step", "aten::add_"], "aten::add_"),
        (["Optimizer.step", "forward"], "forward"),
        (["profiler::_record_function_enter_new"], "profiler::_record_function_enter_new"),
        ([], None),
    ],
)
def test_the_launching_operator_is_the_outermost_with_a_kernel_of_its_own(names, expected):
    launch = Launch(call(1, 0), (0,), tuple(span(name, 0, 10) for name in names))
    operator = launch.operator()
    assert (operator.name if operator else None) == expected


def test_nesting_equals_a_search_over_all_operators(rng):
    """Operators of a thread nest or follow each other, as calls of functions do."""

    def nest(start: int, end: int, lane: int, depth: int) -> list[Event]:
        found, at = [], start
        while depth and at + 2 < end:
            stop = int(rng.integers(at + 1, end))
            found += [span(f"{depth}-{at}", at, stop, lane), *nest(at, stop, lane, depth - 1)]
            at = stop + int(rng.integers(0, 3))
        return found

    for _ in range(20):
        operators = [op for lane in (1, 2) for op in nest(0, 60, lane, 3)]
        starts = rng.integers(0, 65, 12).tolist()
        calls = [call(n + 1, start, lane=1 + n % 2) for n, start in enumerate(starts)]
        kernels = [work(n + 1, 100 + n) for n in range(12)]
        for launch in find_launches(profile(operators, calls, kernels)):
            here, now = launch.call.lane, launch.call.start
            open_now = [op for op in operators if op.lane == here and op.start <= now < op.end]
            expected = sorted(open_now, key=lambda op: (op.start, -op.end))
            assert [op.name for op in launch.operators] == [op.name for op in expected]
