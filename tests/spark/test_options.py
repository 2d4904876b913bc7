import json

import pytest

from lance_core.errors import InvalidInputError
from lance_core.spark.common.options import ReadOptions, WriteOptions, format_options, parse_options


def test_keys_have_no_case_and_values_have_types():
    given = {
        "PATH": "/a b",
        "Version": "3",
        "columns": '["a", "b c"]',
        "filter": "a > 1",
        "with_row_id": "TRUE",
        "storage_options": '{"Key": "v"}',
    }
    assert parse_options(ReadOptions, given) == ReadOptions(
        path="/a b", version=3, columns=("a", "b c"), filter="a > 1", with_row_id=True, storage_options={"Key": "v"}
    )


def test_what_is_formatted_is_parsed_again():
    read = ReadOptions(path="p", tag="t", columns=("x", 'y"'), min_partitions=4)
    write = WriteOptions(path="p", check_replace_where=False, transaction_properties={"a": "ü"}, max_rows_per_file=10)
    assert parse_options(ReadOptions, format_options(read)) == read
    assert parse_options(WriteOptions, format_options(write)) == write


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (ReadOptions, {}, "path is missing"),
        (ReadOptions, {"path": "p", "partitionOverwriteMode": "dynamic"}, "Unknown option 'partitionoverwritemode'"),
        (ReadOptions, {"path": "p", "token": "t"}, "Unknown option 'token'"),
        (WriteOptions, {"path": "p", "tag": "t"}, "Unknown option 'tag'"),
        (ReadOptions, {"paths": '["a", "b"]'}, "Unknown option 'paths'"),
        (ReadOptions, {"path": "p", "version": "0"}, "'version' must be a version number, got '0'"),
        (ReadOptions, {"path": "p", "batch_size": "many"}, "'batch_size' must be a positive number of rows"),
        (ReadOptions, {"path": "p", "columns": "a,b"}, "'columns' must be a JSON list"),
        (ReadOptions, {"path": "p", "columns": "[]"}, "'columns' must be a JSON list"),
        (ReadOptions, {"path": "p", "with_row_id": "yes"}, "'with_row_id' must be true or false"),
        (ReadOptions, {"path": "p", "version": "1", "tag": "t"}, "Give only one"),
        (WriteOptions, {"path": "p", "storage_options": '{"a": 1}'}, "'storage_options' must be a JSON object"),
        (WriteOptions, {"path": "p", "mode": "append"}, "'mode' can only be 'create'"),
        (WriteOptions, {"path": "p", "partition_overwrite_by": "a"}, "JSON list"),
    ],
)
def test_wrong_options_are_named(kind, options, message):
    with pytest.raises(InvalidInputError, match=message):
        parse_options(kind, options)


@pytest.mark.parametrize("kind", [ReadOptions, WriteOptions])
def test_keys_of_the_store_are_not_shown(kind):
    text = '{"aws_secret_access_key": "hidden"}'
    options = parse_options(kind, {"path": "p", "storage_options": text})
    assert options.storage_options == {"aws_secret_access_key": "hidden"}
    assert "hidden" not in repr(options)
    with pytest.raises(InvalidInputError, match="storage_options") as error:
        parse_options(kind, {"path": "p", "storage_options": text[:-1]})
    assert "hidden" not in str(error.value)


def test_what_spark_adds_for_its_catalog_is_ignored():
    given = {"path": "p", "provider": "lance", "owner": "me", "location": "p", "option.path": "p"}
    assert parse_options(ReadOptions, given) == ReadOptions(path="p")


@pytest.mark.parametrize("kind", [ReadOptions, WriteOptions])
def test_settings_of_other_places(kind):
    params = {"s3://cold/t": {"aws_secret_access_key": "hidden"}, "/images": {}}
    options = parse_options(kind, {"path": "p", "baseStoreParams": json.dumps(params)})
    assert options.base_store_params == params
    assert parse_options(kind, format_options(options)) == options
    assert "hidden" not in repr(options)
    for wrong in ("[]", "{", '{"a": "hidden"}', '{"a": {"b": 1}}', '{"a": ["hidden"]}'):
        with pytest.raises(InvalidInputError, match="base_store_params") as error:
            parse_options(kind, {"path": "p", "base_store_params": wrong})
        assert "hidden" not in str(error.value)
