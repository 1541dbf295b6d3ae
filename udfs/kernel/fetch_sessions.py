"""Reconstruct fetch sessions (KIP-227): find all partitions that each request fetched, including unlisted ones.

A follower only lists the partitions whose fetch offset has changed. The leader also reads all other partitions of the
session, at the offsets that it has stored. This kernel keeps the same state as the leader.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from udfs.jit import entry, kernel

NOT_ANSWERED = -1
"""Value of ``high_watermark`` for a partition that is not in the response to the request."""
NEVER_FELL = -1


class SessionCache(NamedTuple):
    """The current fetch session as its leader keeps it. Arrays are indexed by partition number.

    ``members[:used[0]]`` are the partitions in the session, in the order in which they joined. ``position`` is the
    index of a partition in ``members``, or -1 if it is not in the session. ``failed`` is the partition's error in the
    last request that read it. ``error``, ``high_watermark``, ``records_size`` and ``fell_from`` belong to the current
    request only.
    """

    used: npt.NDArray[np.int64]
    members: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    fetch_offset: npt.NDArray[np.int64]
    leader_epoch: npt.NDArray[np.int32]
    failed: npt.NDArray[np.int32]
    error: npt.NDArray[np.int32]
    high_watermark: npt.NDArray[np.int64]
    records_size: npt.NDArray[np.int64]
    fell_from: npt.NDArray[np.int64]


class SessionRequests(NamedTuple):
    """The n fetch requests of a batch. The requests of a session follow each other in chronological order.

    ``clear`` (bool, n): whether the session's state is reset before the request, because the request begins another
    session or is a full fetch. ``skip`` (bool, n): whether the request was refused as a whole, so that nothing was
    read. The partitions that request i lists, forgets, or gets in its response are the entries ``*_start[i]`` to
    ``*_start[i + 1]`` (int64, n + 1) of the flat arrays. The caller numbers partitions from 0.
    """

    clear: npt.NDArray[np.bool_]
    skip: npt.NDArray[np.bool_]
    listed_start: npt.NDArray[np.int64]
    listed: npt.NDArray[np.int64]
    fetch_offset: npt.NDArray[np.int64]
    leader_epoch: npt.NDArray[np.int32]
    forgotten_start: npt.NDArray[np.int64]
    forgotten: npt.NDArray[np.int64]
    answered_start: npt.NDArray[np.int64]
    answered: npt.NDArray[np.int64]
    error: npt.NDArray[np.int32]
    high_watermark: npt.NDArray[np.int64]
    records_size: npt.NDArray[np.int64]


class SessionFetches(NamedTuple):
    """Output arrays of `read_session_partitions`, with one row per request and partition for which it read the log.

    ``request`` is the index of the request in the batch. ``fell_from`` is set if the partition's fetch offset is lower
    than in the previous request of the same leader epoch, although no error made the follower truncate its log. It is
    then the previous offset, else `NEVER_FELL`.
    """

    request: npt.NDArray[np.int64]
    partition: npt.NDArray[np.int64]
    fetch_offset: npt.NDArray[np.int64]
    leader_epoch: npt.NDArray[np.int32]
    error: npt.NDArray[np.int32]
    high_watermark: npt.NDArray[np.int64]
    records_size: npt.NDArray[np.int64]
    fell_from: npt.NDArray[np.int64]


def empty_session_cache(partitions: int) -> SessionCache:
    """Return the state of a session without partitions, with room for the partition numbers below ``partitions``."""
    return SessionCache(
        used=np.zeros(1, np.int64),
        members=np.zeros(partitions, np.int64),
        position=np.full(partitions, -1, np.int64),
        fetch_offset=np.zeros(partitions, np.int64),
        leader_epoch=np.zeros(partitions, np.int32),
        failed=np.zeros(partitions, np.int32),
        error=np.zeros(partitions, np.int32),
        high_watermark=np.full(partitions, NOT_ANSWERED, np.int64),
        records_size=np.zeros(partitions, np.int64),
        fell_from=np.full(partitions, NEVER_FELL, np.int64),
    )


def room_for_session_fetches(rows: int) -> SessionFetches:
    """Allocate arrays for ``rows`` rows of `SessionFetches`."""
    return SessionFetches(
        request=np.empty(rows, np.int64),
        partition=np.empty(rows, np.int64),
        fetch_offset=np.empty(rows, np.int64),
        leader_epoch=np.empty(rows, np.int32),
        error=np.empty(rows, np.int32),
        high_watermark=np.empty(rows, np.int64),
        records_size=np.empty(rows, np.int64),
        fell_from=np.empty(rows, np.int64),
    )


@kernel
def _remove_from_session(cache, partition):
    """Remove a partition from the session. Do nothing if it is not in the session."""
    gap = cache.position[partition]
    if gap < 0:
        return
    cache.used[0] -= 1
    for place in range(gap, cache.used[0]):
        moved = cache.members[place + 1]
        cache.members[place] = moved
        cache.position[moved] = place
    cache.position[partition] = -1


@kernel
def _clear_session(cache):
    """Remove all partitions from the session."""
    for place in range(cache.used[0]):
        cache.position[cache.members[place]] = -1
    cache.used[0] = 0


@kernel
def _list_in_session(cache, partition, fetch_offset, leader_epoch):
    """Process a partition that a request lists: add it to the session, or update its offset and leader epoch."""
    if cache.position[partition] < 0:
        cache.position[partition] = cache.used[0]
        cache.members[cache.used[0]] = partition
        cache.used[0] += 1
        cache.failed[partition] = 0
    elif (
        fetch_offset < cache.fetch_offset[partition]
        and leader_epoch == cache.leader_epoch[partition]
        and cache.failed[partition] == 0
    ):
        cache.fell_from[partition] = cache.fetch_offset[partition]
    cache.fetch_offset[partition] = fetch_offset
    cache.leader_epoch[partition] = leader_epoch


@entry
def read_session_partitions(first, requests: SessionRequests, cache: SessionCache, out: SessionFetches):
    """Process the requests from index ``first`` on, until all are done or ``out`` is full.

    If a request both lists and forgets a partition, it does not read the partition, because the leader first adds
    listed partitions and then removes forgotten ones.

    Parameters
    ----------
    first : int64
        Index of the first request: 0, or the result of the previous call.
    requests : SessionRequests
        Requests of the batch.
    cache : SessionCache
        State of the session. It is updated in place; pass it again with the next batch.
    out : SessionFetches
        The rows are written here, from row 0 on. The caller gives it at least as many rows as ``cache`` has partitions.

    Returns
    -------
    (int64, int64)
        The index of the request to continue with (the number of requests if all are done), and the number of rows
        written.
    """
    room = len(out.request)
    filled = 0
    for i in range(first, len(requests.clear)):
        if requests.clear[i]:
            _clear_session(cache)
        if requests.skip[i]:
            continue
        for k in range(requests.listed_start[i], requests.listed_start[i + 1]):
            _list_in_session(cache, requests.listed[k], requests.fetch_offset[k], requests.leader_epoch[k])
        for k in range(requests.forgotten_start[i], requests.forgotten_start[i + 1]):
            _remove_from_session(cache, requests.forgotten[k])
        if filled + cache.used[0] > room:
            # The next call processes this request again. Clearing the state or applying its lists twice changes
            # nothing.
            return i, filled
        for k in range(requests.answered_start[i], requests.answered_start[i + 1]):
            cache.error[requests.answered[k]] = requests.error[k]
            cache.high_watermark[requests.answered[k]] = requests.high_watermark[k]
            cache.records_size[requests.answered[k]] = requests.records_size[k]
        for place in range(cache.used[0]):
            partition = cache.members[place]
            out.request[filled] = i
            out.partition[filled] = partition
            out.fetch_offset[filled] = cache.fetch_offset[partition]
            out.leader_epoch[filled] = cache.leader_epoch[partition]
            out.error[filled] = cache.error[partition]
            out.high_watermark[filled] = cache.high_watermark[partition]
            out.records_size[filled] = cache.records_size[partition]
            out.fell_from[filled] = cache.fell_from[partition]
            cache.failed[partition] = cache.error[partition]
            filled += 1
        for k in range(requests.listed_start[i], requests.listed_start[i + 1]):
            cache.fell_from[requests.listed[k]] = NEVER_FELL
        for k in range(requests.answered_start[i], requests.answered_start[i + 1]):
            cache.error[requests.answered[k]] = 0
            cache.high_watermark[requests.answered[k]] = NOT_ANSWERED
            cache.records_size[requests.answered[k]] = 0
    return len(requests.clear), filled
