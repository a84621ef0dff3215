"""The waiting line: fair, bounded, and honest about its order."""

import pytest

from studio.errors import QueueFull
from studio.queue import FairQueue


def drain(queue: FairQueue) -> list[str]:
    taken = []
    while (job_id := queue.pop()) is not None:
        taken.append(job_id)
    return taken


def filled(*pairs: tuple[str, str], capacity: int = 16) -> FairQueue:
    queue = FairQueue(capacity)
    for owner, job_id in pairs:
        queue.push(owner, job_id)
    return queue


def test_owners_take_turns() -> None:
    queue = filled(("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("b", "b2"))
    assert queue.order() == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert drain(queue) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_newcomer_does_not_wait_for_a_hundred_jobs_of_another() -> None:
    queue = filled(*(("a", f"a{n}") for n in range(100)), capacity=200)
    queue.pop()
    queue.push("b", "b1")
    assert queue.order().index("b1") == 1


def test_the_order_is_what_pop_gives_at_every_moment() -> None:
    queue = filled(*((owner, f"{owner}{n}") for n in range(4) for owner in "abc"))
    queue.push_front("again")
    while len(queue):
        order = queue.order()
        assert queue.peek() == order[0]
        assert queue.pop() == order[0]
        assert queue.order() == order[1:] or sorted(queue.order()) == sorted(order[1:])


def test_full_queue_refuses_and_says_when_to_come_back() -> None:
    queue = filled(("a", "a1"), ("a", "a2"), capacity=2)
    with pytest.raises(QueueFull) as caught:
        queue.check_room("a", retry_after_s=7)
    assert caught.value.status == 429
    assert caught.value.headers["Retry-After"] == "7"
    with pytest.raises(QueueFull):
        queue.push("a", "a3")
    assert len(queue) == 2


def test_a_full_queue_shuts_the_door_on_nobody_who_has_nothing_waiting() -> None:
    queue = filled(("a", "a1"), ("a", "a2"), capacity=2)
    queue.push("b", "b1")
    queue.push("c", "c1")
    with pytest.raises(QueueFull):  # but twice the capacity is the end for everybody
        queue.push("d", "d1")
    assert queue.order() == ["a1", "b1", "c1", "a2"]


def test_a_retried_job_goes_first_even_when_the_queue_is_full() -> None:
    queue = filled(("a", "a1"), capacity=1)
    queue.push_front("again")
    assert drain(queue) == ["again", "a1"]


def test_remove_takes_one_job_and_leaves_the_others() -> None:
    queue = filled(("a", "a1"), ("a", "a2"), ("b", "b1"))
    queue.push_front("again")
    assert queue.remove("a1")
    assert queue.remove("again")
    assert queue.remove("b1")
    assert not queue.remove("b1")
    assert drain(queue) == ["a2"]
