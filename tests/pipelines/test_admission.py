"""Who starts when: room, turns between owners, and no waiting behind an odd size."""

from pipelines.admission import PATIENCE, Admission, Ticket


def admission(max_tokens: int, *tickets: tuple[str, str, int]) -> Admission:
    queue = Admission(max_tokens)
    for request_id, owner, tokens in tickets:
        queue.add(Ticket(request_id, 0, owner, tokens))
    return queue


def admitted(queue: Admission) -> list[str]:
    return [ticket.request_id for ticket in queue.admit()]


def test_as_many_start_as_there_is_room_for():
    queue = admission(100, ("a", "", 40), ("b", "", 40), ("c", "", 40))
    assert admitted(queue) == ["a", "b"]
    assert admitted(queue) == []
    queue.release("a", 0)
    assert admitted(queue) == ["c"]


def test_owners_take_turns():
    many = [(f"a{n}", "ann", 10) for n in range(4)]
    queue = admission(40, *many, ("b0", "bob", 10), ("b1", "bob", 10))
    assert admitted(queue) == ["a0", "b0", "a1", "b1"]


def test_who_holds_less_comes_first():
    queue = admission(30, ("a0", "ann", 10), ("a1", "ann", 10), ("a2", "ann", 10))
    assert admitted(queue) == ["a0", "a1", "a2"]
    queue.add(Ticket("a3", 0, "ann", 10))
    queue.add(Ticket("b0", 0, "bob", 10))
    queue.release("a0", 0)
    assert admitted(queue) == ["b0"]


def test_a_large_picture_does_not_hold_up_small_ones():
    queue = admission(100, ("first", "", 50), ("large", "", 80), ("small", "", 50))
    assert admitted(queue) == ["first", "small"]


def test_a_large_picture_is_not_passed_over_for_ever():
    queue = admission(100, ("s0", "", 50), ("large", "", 80))
    started = admitted(queue)
    for n in range(1, 100):
        queue.add(Ticket(f"s{n}", 0, "", 50))
        started += admitted(queue)
        queue.release(started[-1] if started[-1] != "large" else "", 0)
        if "large" in started:
            break
        if n > PATIENCE + 2:
            queue.release("s0", 0)
    assert "large" in started
    assert started.index("large") <= PATIENCE + 3


def test_a_picture_larger_than_all_room_runs_alone():
    queue = admission(100, ("huge", "", 500), ("small", "", 10))
    assert admitted(queue) == ["huge"]
    queue.release("huge", 0)
    assert admitted(queue) == ["small"]


def test_a_dropped_request_frees_its_room_and_its_places():
    queue = admission(20, ("a", "", 10), ("b", "", 10), ("c", "", 10))
    queue.add(Ticket("a", 1, "", 10))
    assert admitted(queue) == ["a", "b"]
    queue.drop("a")
    assert admitted(queue) == ["c"]


def test_a_request_may_be_dropped_while_tickets_are_handed_out():
    queue = admission(100, ("bad", "", 10), ("good", "", 10))
    queue.add(Ticket("bad", 1, "", 10))
    started = []
    for ticket in queue.admit():
        started.append(ticket.request_id)
        if ticket.request_id == "bad":
            queue.drop("bad")
    assert started == ["bad", "good"]
