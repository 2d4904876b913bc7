"""What is held against checksums, and how often; counts are exact, so that a change for the worse shows."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.errors import CorruptDataError
from lance_core.file import integrity
from lance_core.file.read.reader import DataFileReader
from lance_core.file.scattered import copied_ranges
from lance_core.format.file.checksums import SMALLEST_BLOCK as BLOCK_SIZE
from lance_core.format.file.checksums import crc32, join_sums
from lance_core.store.local import LocalReader

RUN = 64
NUM_BLOCKS = 1200
RNG = np.random.default_rng(5)


@pytest.fixture
def content(data_file):
    data_file.write(pa.table({"a": pa.array(RNG.random(NUM_BLOCKS * BLOCK_SIZE // 8))}))
    return data_file


@pytest.fixture
def calls(monkeypatch):
    sizes = []

    def counted(data, *start):
        sizes.append(len(data))
        return crc32(data, *start)

    monkeypatch.setattr(integrity, "crc32", counted)
    return sizes


def _columns(reader):
    return {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}


def _scan(reader):
    columns = _columns(reader)
    return list(reader.scan(reader.schema, columns, start=0, end=reader.num_rows, batch_size=1 << 16))


def test_sums_of_runs_follow_from_those_of_their_blocks():
    for num_blocks in (1, 2, 8, 16):
        blocks = [[RNG.bytes(100) for _ in range(num_blocks)] for _ in range(3)]
        sums = np.array([[crc32(one) for one in run] for run in blocks], np.uint32)
        assert join_sums(sums, 100).tolist() == [crc32(b"".join(run)) for run in blocks]


def test_runs_are_consecutive_and_do_not_overlap():
    blocks = np.flatnonzero(RNG.random(3000) < 0.97)
    firsts = integrity._runs(blocks, 16).tolist()
    assert firsts, "there are runs"
    expected, at = [], 0
    while at < len(blocks):
        is_run = at + 16 <= len(blocks) and blocks[at + 15] - blocks[at] == 15
        expected += [at] if is_run else []
        at += 16 if is_run else 1
    # Runs begin where consecutive blocks do; the slow way finds the first that fits, which is the same.
    assert firsts == expected


@pytest.mark.parametrize("blocks", [np.arange(0, 6000, 2), np.arange(40), np.arange(15), np.empty(0, np.int64)])
def test_runs_begin_only_where_so_many_blocks_follow(blocks):
    expected = [0, 16] if len(blocks) == 40 else []
    assert integrity._runs(blocks, 16).tolist() == expected


@pytest.mark.parametrize("longest", [1, 3, 8, 9, 500])
@pytest.mark.parametrize("last", [50, 4000, 10**7])
def test_blocks_of_ranges_are_found_once_each(longest, last):
    starts = RNG.integers(0, last, 60)
    ends = starts + RNG.integers(0, longest + 1, 60)
    wanted = {block for low, high in zip(starts.tolist(), ends.tolist(), strict=True) for block in range(low, high)}
    assert integrity._union(starts, ends).tolist() == sorted(wanted)


def test_scattered_blocks_are_not_put_together(content, calls, monkeypatch):
    joined = []
    monkeypatch.setattr(integrity, "join_sums", lambda *args: joined.append(args) or join_sums(*args))
    reader = content.open()
    rows = np.arange(0, NUM_BLOCKS, 2) * (BLOCK_SIZE // 8) + 300
    reader.take(reader.schema, _columns(reader), rows)
    assert len(calls) > len(rows), "more blocks than some runs have"
    assert not joined
    _scan(content.open())
    assert joined


def test_a_scan_checks_runs_of_blocks_and_each_byte_once(content, calls):
    reader = content.open()
    _scan(reader)
    # Runs end where windows do, and a stream has several.
    assert len(calls) <= NUM_BLOCKS // RUN + 5 * RUN
    assert NUM_BLOCKS * BLOCK_SIZE <= sum(calls) <= len(content.bytes())
    calls.clear()
    _scan(reader)
    reader.take(reader.schema, _columns(reader), np.array([7, 100_000]))
    assert not calls, "what is known to be good is not looked at again"


def test_single_rows_check_their_blocks_only(content, calls):
    reader = content.open()
    before = len(calls)
    reader.take(reader.schema, _columns(reader), np.array([7]))
    assert len(calls) - before <= 3


@pytest.mark.parametrize("block", [0, 1, 100, NUM_BLOCKS - 1])
def test_damage_within_a_run_is_found_where_it_is(content, block):
    data = bytearray(content.bytes())
    at = block * BLOCK_SIZE + 2000
    data[at] ^= 1
    data[at + 1] ^= 128
    content.store.put("x.lance", bytes(data))
    reader = content.open()
    with pytest.raises(CorruptDataError) as error:
        _scan(reader)
    assert error.value.offset == block * BLOCK_SIZE
    rows = np.array([at // 8])
    for opened in (reader, content.open()):
        with pytest.raises(CorruptDataError, match="checksum"):
            opened.take(opened.schema, _columns(opened), rows)


class _Remote:
    """A file that is not mapped."""

    def __init__(self, inner):
        self._inner = inner
        self.size = inner.size

    def read_ranges(self, ranges):
        return self._inner.read_ranges(ranges)

    def close(self):
        self._inner.close()


def test_files_that_are_not_mapped_are_checked_alike(content, calls):
    reader = DataFileReader(_Remote(content.store.reader("x.lance")), path="x.lance")
    _scan(reader)
    assert len(calls) <= NUM_BLOCKS // RUN + 4 * RUN
    assert NUM_BLOCKS * BLOCK_SIZE <= sum(calls) <= len(content.bytes())
    calls.clear()
    reader.take(reader.schema, _columns(reader), np.array([7, 100_000]))
    assert not calls


def test_ranges_across_checksums_are_refused(content):
    reader = content.open()
    checks = reader._file.checks
    (_, start), (tail, size) = checks.parts()
    data = memoryview(content.bytes())
    for low, high in ((start - 1, start + 1), (start - 1, tail + 1), (tail, size + 1), (start, tail + 1)):
        with pytest.raises(CorruptDataError, match="across"):
            checks.check(data, np.array([low]), np.array([high]))
        with pytest.raises(CorruptDataError, match="across"):
            checks.widened(low, high)
    checks.check(data, np.array([start, 0, tail]), np.array([tail, 0, size]))


def test_few_ranges_are_judged_as_many_are(content, monkeypatch):
    size, rng = len(content.bytes()), np.random.default_rng(3)
    data = bytearray(content.bytes())
    for at in (3 * BLOCK_SIZE + 5, 40 * BLOCK_SIZE, size - 1):
        data[at] ^= 4
    place = content.open()._file.checks._section
    edges = [0, place.start, place.tail_start, size, *(block * BLOCK_SIZE for block in (1, 3, 4, 39, 40, 41))]

    def judged(few):
        monkeypatch.setattr(integrity, "_MAX_SCALAR_RANGES", few)
        checks = content.open()._file.checks
        checks._is_good[:] = False
        found = []
        for starts, ends in asked:
            try:
                checks.check(memoryview(data), starts, ends)
                found.append(np.flatnonzero(checks._is_good).tolist())
            except CorruptDataError as error:
                found.append((error.message, error.offset))
        return found

    asked = []
    for _ in range(300):
        count = int(rng.integers(1, 9))
        starts = np.clip(rng.choice(edges, count) + rng.integers(-2, 3, count), 0, size)
        ends = starts + rng.choice([0, 1, 5, BLOCK_SIZE, 3 * BLOCK_SIZE, 30 * BLOCK_SIZE], count)
        asked.append((starts, ends))
    few, many = judged(8), judged(0)
    verdicts = [[one if isinstance(one, list) else one[0] for one in all_] for all_ in (few, many)]
    assert [isinstance(one, list) for one in few] == [isinstance(one, list) for one in many]
    assert sum(isinstance(one, list) for one in few) > 30
    assert any("across" in str(one) for one in verdicts[0])
    assert any("damaged" in str(one) for one in verdicts[0])


@pytest.mark.parametrize("whole", [False, True], ids=["rows", "scan"])
def test_the_kernel_is_told_of_all_that_is_looked_at(content, monkeypatch, whole):
    looked_at, announced = [], []
    announce, check = LocalReader.announce, integrity.BlockChecks.check

    def counted(reader, starts, ends):
        announced.extend(zip(starts.tolist(), ends.tolist(), strict=True))
        announce(reader, starts, ends)

    def noted(checks, data, starts, ends, *, at=0):
        (_, limit), _ = checks.parts()
        blocks = ((start // BLOCK_SIZE, -(-end // BLOCK_SIZE)) for start, end in zip(starts, ends, strict=True))
        looked_at.extend((low * BLOCK_SIZE, min(high * BLOCK_SIZE, limit)) for low, high in blocks)
        check(checks, data, starts, ends, at=at)

    reader = content.open()
    monkeypatch.setattr(LocalReader, "announce", counted)
    monkeypatch.setattr(integrity.BlockChecks, "check", noted)
    if whole:
        _scan(reader)
    else:
        reader.take(reader.schema, _columns(reader), np.array([5, 70_000, 300_001]))
    looked_at = [one for one in looked_at if one[0] < NUM_BLOCKS * BLOCK_SIZE]  # what is behind came with the footer
    assert len(looked_at) >= (1 if whole else 3)
    assert not [one for one in looked_at if not any(low <= one[0] and one[1] <= high for low, high in announced)]


def test_copies_are_checked_once_and_damage_is_found_where_it_is(content, calls):
    file, data = content.open()._file, bytearray(content.bytes())
    asked = np.array([5, 40 * BLOCK_SIZE + 7, 41 * BLOCK_SIZE, 300 * BLOCK_SIZE - 1])

    def copied(file):
        copies = copied_ranges([file.copied()], asked, asked + 9)[0]
        copies.begin(memoryview(bytearray(copies.num_bytes)))
        copies.finish()
        return copies

    calls.clear()
    copies = copied(file)
    assert [int(one) // BLOCK_SIZE for one in copies.starts] == [0, 40, 299]
    assert [int(one) // BLOCK_SIZE for one in copies.ends] == [1, 42, 301]
    assert calls == [BLOCK_SIZE] * 5
    copied(file)
    assert len(calls) == 5, "what is known to be good"
    data[41 * BLOCK_SIZE + 3000] ^= 1
    content.store.put("x.lance", bytes(data))
    with pytest.raises(CorruptDataError, match="damaged") as error:
        copied(content.open()._file)
    assert error.value.offset == 41 * BLOCK_SIZE


def test_copies_lie_before_the_checksums(content):
    file = content.open()._file
    (_, start), (tail, size) = file.checks.parts()
    last = copied_ranges([file.copied()], np.array([start - 1]), np.array([start]))[0]
    last.begin(memoryview(bytearray(last.num_bytes)))
    last.finish()
    for low, high in ((start - 1, start + 1), (start, tail), (tail, size)):
        copies = copied_ranges([file.copied()], np.array([low]), np.array([high]))[0]
        copies.begin(memoryview(bytearray(copies.num_bytes)))
        with pytest.raises(CorruptDataError, match="across"):
            copies.finish()
    with pytest.raises(CorruptDataError, match="beyond the end"):
        copied_ranges([file.copied()], np.array([size - 1]), np.array([size + 1]))
