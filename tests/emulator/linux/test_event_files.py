"""epoll: in which order its interest list reports files."""

from __future__ import annotations

from emulator.linux.vfs.event_files import EventCounter, EventPoll
from emulator.linux.vfs.open_files import POLLIN, POLLOUT


def test_only_reported_files_move_to_the_end_of_the_list() -> None:
    poll, counters = EventPoll(), [EventCounter(0, 1, is_semaphore=False) for _ in range(3)]
    for descriptor, (events, data) in enumerate(((POLLIN, 7), (POLLIN, 8), (POLLIN | POLLOUT, 7))):
        counters[descriptor].references = 1
        poll.add(descriptor, counters[descriptor], events, data)
    first, second, third = (POLLIN, 7), (POLLIN, 8), (POLLIN | POLLOUT, 7)
    assert poll.take(1) == [first]
    # The third file has the data of the first one, but was not reported: it keeps its place.
    assert poll.take(3) == [second, third, first]
    assert poll.take(2) == [second, third]
    assert poll.take(3) == [first, second, third]
