"""The cache of decoded parts of an index keeps what was used last, and no more bytes than it may."""

from lance_core.index.cache import BoundedCache


def test_values_used_least_recently_go_first():
    cache = BoundedCache(100)
    for key in "abc":
        cache.put(key, key.upper(), 40)
    assert [cache.get(key) for key in "abc"] == [None, "B", "C"]
    cache.get("b")
    cache.put("d", "D", 40)
    assert [cache.get(key) for key in "bcd"] == ["B", None, "D"]


def test_a_value_replaces_another_one_and_its_bytes():
    cache = BoundedCache(100)
    cache.put("a", 1, 90)
    cache.put("a", 2, 20)
    cache.put("b", 3, 80)
    assert (cache.get("a"), cache.get("b")) == (2, 3)


def test_what_is_larger_than_the_cache_is_not_kept():
    cache = BoundedCache(100)
    cache.put("a", 1, 50)
    cache.put("b", 2, 101)
    assert (cache.get("a"), cache.get("b")) == (1, None)
