import pickle
from dataclasses import replace

import numpy as np
import pytest

from lance_core._proto import table_pb2
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.table.fragment import (
    DataFile,
    DeletionFile,
    DeletionFileType,
    ExternalFile,
    Fragment,
    RowLineageColumn,
    decode_fragment,
    encode_fragment,
)
from lance_core.format.table.fragment_list import FragmentList, without_ids

FILE = DataFile(
    path="a.lance",
    fields=(0, -2, 3),
    column_indices=(0, 1, 2),
    file_major_version=2,
    file_minor_version=2,
    file_size_bytes=77,
)


def fragment(number, deleted=0):
    deletion_file = DeletionFile(
        file_type=DeletionFileType.BITMAP, read_version=3, id=(1 << 64) - 1, num_deleted_rows=deleted
    )
    return Fragment(id=number, files=(FILE,), physical_rows=100, deletion_file=deletion_file if deleted else None)


@pytest.mark.parametrize(
    "value",
    [
        fragment(0),
        fragment(7, deleted=5),
        replace(fragment(1), files=(replace(FILE, base_id=0),)),
        replace(
            fragment(2),
            row_id_sequence=b"ids",
            last_updated_at_version_sequence=RowLineageColumn(),
            created_at_version_sequence=ExternalFile(path="x/y.bin", offset=1 << 40, size=7),
        ),
    ],
)
def test_round_trip(value):
    assert decode_fragment(encode_fragment(value)) == value


def test_overlays_are_refused():
    pb = table_pb2.DataFragment(id=4)
    pb.overlays.add()
    with pytest.raises(UnsupportedError, match="overlays"):
        decode_fragment(pb.SerializeToString())


def test_garbage_is_refused():
    with pytest.raises(CorruptDataError):
        decode_fragment(b"\xff\xff")


def test_list_decodes_one_at_a_time_and_sums_in_bulk():
    fragments = FragmentList.of([fragment(3), fragment(5, deleted=10), fragment(1 << 30)])
    assert len(fragments) == 3
    assert fragments[1] == fragment(5, deleted=10)
    assert fragments.ids.tolist() == [3, 5, 1 << 30]
    assert fragments.num_rows.tolist() == [100, 90, 100]
    assert fragments.has_deletions
    assert not FragmentList.of([fragment(3)]).has_deletions
    assert fragments.find(5) == fragment(5, deleted=10)
    assert fragments.find(4) is None
    assert [one.id for one in fragments.select([1 << 30, 3, 99])] == [3, 1 << 30]


@pytest.mark.slow
@pytest.mark.parametrize("first_id", [0, 12_000, (1 << 21) - 6000, 1 << 31, 1 << 60])
@pytest.mark.parametrize("most_rows", [1 << 14, 1 << 36])
def test_numbers_of_many_fragments_are_those_of_the_decoded_ones(first_id, most_rows):
    rng = np.random.default_rng(5)
    rows = rng.integers(1, most_rows, 12_000).tolist()
    few = [replace(fragment(first_id + number), physical_rows=rows[number]) for number in range(12_000)]
    for number in (0, 4000, 4001, 11_999):  # among many that look alike, some that do not
        few[number] = replace(few[number], files=(), physical_rows=(1 << 40) + number)
    for number in range(7000, 7005):
        few[number] = fragment(first_id + number, deleted=number)
    fragments = FragmentList.of(few)
    assert fragments.ids.tolist() == [one.id for one in few]
    assert fragments.physical_rows.tolist() == [one.physical_rows for one in few]
    assert fragments.num_deleted_rows.tolist() == [one.num_deleted_rows for one in few]


@pytest.mark.parametrize("covered", [[], [[]], [[9, 2], [5]], [[9, 5, 2]], [[1 << 30, 0, 7]]])
def test_fragments_outside_of_some_ids_keep_their_order(covered):
    fragments = [fragment(number) for number in (2, 5, 9)]
    rest = [number for number in (2, 5, 9) if not any(number in ids for ids in covered)]
    for some in (fragments, FragmentList.of(fragments)):
        assert [item.id for item in without_ids(some, [np.array(ids, np.int64) for ids in covered])] == rest


@pytest.mark.parametrize("count", [5, 12_000])
def test_fragments_that_leave_something_out_are_found_among_many(count):
    external = ExternalFile(path="x", offset=0, size=1)
    few = [replace(fragment(number), row_id_sequence=b"ids") for number in range(count)]
    few[1] = replace(few[1], physical_rows=0)
    few[2] = replace(few[2], created_at_version_sequence=external)
    few[3] = replace(few[3], deletion_file=replace(fragment(3, deleted=1).deletion_file, num_deleted_rows=0))
    few[count - 1] = replace(few[count - 1], row_id_sequence=external)
    assert FragmentList.of(few).incomplete().tolist() == [1, 2, 3, count - 1]
    longer = FragmentList.of(few[:2]).extended(few[2:])
    assert longer.incomplete().tolist() == [1, 2, 3, count - 1]
    longer.check(uses_stable_row_ids=True)
    few[count - 2] = replace(few[count - 2], row_id_sequence=None)
    with pytest.raises(CorruptDataError, match=f"fragment {count - 2} has no row ids"):
        FragmentList.of(few).check(uses_stable_row_ids=True)


def checked(fragments):
    assert not len(fragments.incomplete())
    fragments.check(uses_stable_row_ids=False)
    return fragments


@pytest.mark.parametrize(
    "wrong",
    [fragment(2, deleted=101), replace(fragment(2), row_id_sequence=b"ids"), fragment(1)],
    ids=["more deleted rows than rows", "row ids", "id that is taken"],
)
def test_fragments_that_join_a_checked_list_are_checked(wrong):
    before = checked(FragmentList.of([fragment(0), fragment(1)]))
    longer = checked(before.extended([fragment(2, deleted=100)]))
    assert not len(longer.extended([fragment(3)]).incomplete())
    for fragments in (before, longer):
        with pytest.raises(CorruptDataError, match="fragment"):
            fragments.extended([replace(wrong, id=wrong.id + len(fragments) - 2)]).check(uses_stable_row_ids=False)
        if wrong.id == 2:  # what is replaced keeps its id
            with pytest.raises(CorruptDataError, match="fragment 1"):
                fragments.replaced(updated={1: replace(wrong, id=1)}).check(uses_stable_row_ids=False)


@pytest.mark.parametrize("deleted", [None, 0])
def test_what_joins_a_checked_list_and_leaves_something_out_is_found(deleted):
    lacking = replace(fragment(2), physical_rows=0)
    if deleted is not None:
        lacking = replace(
            fragment(2, deleted=1), deletion_file=replace(fragment(2, 1).deletion_file, num_deleted_rows=0)
        )
    before = checked(FragmentList.of([fragment(0), fragment(1)]))
    longer = before.extended([lacking])
    assert longer.incomplete().tolist() == [2]
    assert longer.replaced(removed=[0]).incomplete().tolist() == [1]
    assert before.replaced(updated={1: replace(lacking, id=1)}).incomplete().tolist() == [1]
    assert not len(longer.replaced(updated={2: fragment(2, deleted=1)}).incomplete())


def test_fragments_of_one_size_may_still_be_laid_out_differently():
    alike = [table_pb2.DataFragment(id=5, physical_rows=300).SerializeToString()] * 3000
    alike[1000] = table_pb2.DataFragment(id=300, physical_rows=5).SerializeToString()
    alike[2000] = b"\x2a\x03\x08\x09\x10"  # bytes that look like an id
    fragments = FragmentList(alike)
    assert len(set(map(len, alike))) == 1
    assert fragments.ids[[0, 1000, 1999, 2000, 2001]].tolist() == [5, 300, 5, 0, 5]
    assert fragments.physical_rows[[0, 1000, 1999, 2000, 2001]].tolist() == [300, 5, 300, 0, 300]
    alike[2500] = b"\x08\xff\xff\xff\xff"
    with pytest.raises(CorruptDataError):
        _ = FragmentList(alike).ids


def test_a_long_row_of_changes_keeps_the_bytes_of_what_did_not_change():
    fragments = FragmentList.of([fragment(number) for number in range(3)])
    for number in range(3, 100):
        fragments = fragments.replaced(added=[fragment(number)])
    assert len(fragments.parts) < 100
    assert list(fragments) == [fragment(number) for number in range(100)]
    assert fragments == FragmentList.of([fragment(number) for number in range(100)])
    assert fragments != fragments.replaced(removed=[7])
    assert fragments.replaced() is fragments


def test_what_an_append_adds_is_counted_without_a_new_look_at_the_rest(monkeypatch):
    fragments = FragmentList.of([fragment(number) for number in range(10)])
    assert fragments.highest_id == 9
    monkeypatch.setattr("lance_core.format.table.fragment_numbers.scan", None)
    longer = fragments.replaced(added=[fragment(11, deleted=3)]).replaced(added=[fragment(12)])
    assert (longer.highest_id, longer.has_deletions, fragments.has_deletions) == (12, True, False)
    assert longer.ids.tolist() == [*range(10), 11, 12]
    assert longer.num_rows.tolist() == [100] * 10 + [97, 100]
    assert longer.replaced(added=[fragment(10)]).ids.tolist() == list(range(13))


def test_empty_list():
    fragments = FragmentList()
    assert fragments.ids.tolist() == []
    assert fragments.highest_id == -1
    assert not fragments.has_deletions
    assert list(fragments.replaced(added=[fragment(1)])) == [fragment(1)]


def test_untouched_records_are_copied_as_they_are():
    pb = table_pb2.DataFragment(id=1, clustering_id=9, physical_rows=1)
    pb.metadata["kept"] = "yes"
    foreign = pb.SerializeToString()
    fragments = FragmentList([foreign, encode_fragment(fragment(2)), encode_fragment(fragment(3))])
    changed = fragments.replaced(removed=[3], updated={2: fragment(2, deleted=1)}, added=[fragment(4)])
    assert changed.records[0] == foreign
    assert [one.id for one in changed] == [1, 2, 4]
    assert changed[1].num_deleted_rows == 1


def test_result_is_ascending_by_id():
    fragments = FragmentList.of([fragment(9), fragment(2)]).replaced(added=[fragment(5)])
    assert fragments.ids.tolist() == [2, 5, 9]


def test_pickles():
    fragments = FragmentList.of([fragment(1)])
    assert pickle.loads(pickle.dumps(fragments)) == fragments  # noqa: S301 - our own bytes


def test_replaced_agrees_with_a_dictionary():
    rng = np.random.default_rng(0)
    model = {number: fragment(number) for number in range(50)}
    fragments = FragmentList.of(model.values())
    for step in range(30):
        ids = rng.permutation(sorted(model))[:6].tolist()
        removed, updated = ids[:3], {number: fragment(number, deleted=step + 1) for number in ids[3:]}
        added = [fragment(100 + 2 * step), fragment(101 + 2 * step)]
        fragments = fragments.replaced(removed=removed, updated=updated, added=added)
        model = {number: one for number, one in model.items() if number not in removed} | updated
        model |= {one.id: one for one in added}
        anew = FragmentList.of([model[number] for number in sorted(model)])
        assert list(fragments) == list(anew)
        assert fragments == anew
        for name in ("ids", "physical_rows", "num_deleted_rows"):
            assert getattr(fragments, name).tolist() == getattr(anew, name).tolist()
        assert fragments.highest_id == anew.highest_id
        assert [one.id for one in fragments.select([*ids, 7000, added[0].id])] == sorted([*ids[3:], added[0].id])


def test_fragments_are_found_in_a_list_that_does_not_ascend():
    fragments = FragmentList.of([fragment(9), fragment(2), fragment(5)])
    assert [one.id for one in fragments.select([5, 3, 9])] == [9, 5]
    assert fragments.find(2) == fragment(2)
    assert fragments.find(3) is None
    assert FragmentList().find(3) is None


def test_totals_of_data_files_are_those_of_the_decoded_fragments():
    def data_file(size):
        return DataFile(
            path=f"{size}.lance",
            fields=(0, 1),
            column_indices=(0, 1),
            file_major_version=2,
            file_minor_version=2,
            file_size_bytes=size,
        )

    files = [(data_file(5),), (), (data_file(1 << 40), data_file(0), data_file(300))]
    fragments = FragmentList.of(
        Fragment(id=number, files=some, physical_rows=1 << 20) for number, some in enumerate(files)
    )
    assert fragments.data_file_totals() == (4, (1 << 40) + 305)
    assert FragmentList().data_file_totals() == (0, 0)
    assert fragments.highest_field_id == 1
    assert FragmentList().highest_field_id == -1
    with pytest.raises(CorruptDataError, match="decoded"):
        _ = FragmentList([b"\xff"]).highest_field_id
