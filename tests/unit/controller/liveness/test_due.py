"""The queue by time, against a scan of everything."""

import hypothesis.strategies as st
from gantry_controller.liveness.core.due import DueQueue
from hypothesis import given

Key = tuple[str, int]

keys = st.tuples(st.sampled_from("ab"), st.integers(0, 3))
times = st.integers(0, 20).map(lambda tenths: tenths / 2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, times),
        st.tuples(st.just("hasten"), keys, times),
        st.tuples(st.just("drop"), keys, times),
        st.tuples(st.just("take"), st.integers(1, 4), times),
    ),
    max_size=60,
)


@given(steps)
def test_equals_a_scan(script: list[tuple[str, object, float]]) -> None:
    queue: DueQueue[Key] = DueQueue()
    naive: dict[Key, float] = {}
    for verb, what, time_s in script:
        match verb, what:
            case "put", (str(), int()) as key:
                queue.put(key, time_s)
                naive[key] = time_s
            case "hasten", (str(), int()) as key:
                queue.hasten(key, time_s)
                naive[key] = min(time_s, naive.get(key, time_s))
            case "drop", (str(), int()) as key:
                queue.drop(key)
                naive.pop(key, None)
            case "take", int() as limit:
                due = sorted((due_s, key) for key, due_s in naive.items() if due_s <= time_s)
                taken = queue.take(time_s, limit)
                assert [naive.pop(key) for key in taken] == [due_s for due_s, _ in due[:limit]]
        assert queue.next_due() == min(naive.values(), default=None)
        assert len(queue) == len(naive)
        assert all(key in queue for key in naive)


def test_putting_off_is_free_and_leaves_nothing_behind() -> None:
    queue: DueQueue[Key] = DueQueue()
    for beat in range(10_000):
        queue.put(("a", 1), 10.0 + beat)
    assert queue.next_due() == 10_009.0
    assert queue.take(10_009.0, 10) == [("a", 1)]
    assert queue.next_due() is None


def test_leftovers_are_bounded_by_what_is_known() -> None:
    queue: DueQueue[Key] = DueQueue()
    for round_ in range(100):
        for number in range(100):
            queue.put(("a", number), 1000.0 - round_)
    assert len(queue._heap) <= 201
    assert len(queue.take(2000.0, 1000)) == 100
