"""The type checker looks at what a change may break; `make lint` runs it, as it runs the linter and the contracts."""

import importlib.util
from pathlib import Path


def test_types_are_checked_where_a_change_may_break_them():
    spec = importlib.util.spec_from_file_location("check_types", Path(__file__).with_name("check_types.py"))
    check_types = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check_types)
    files = {"settings": "0", "p/__init__.py": "1", "p/a.py": "2", "p/b.py": "3", "p/c.py": "4"}
    imported_by = {"p": {"p/c.py"}, "p.a": {"p/b.py"}, "p.gone": {"p/a.py"}}

    def found(**changes):
        now = {**files, **{path.replace("_", "/") + ".py": digest for path, digest in changes.items()}}
        return check_types.to_check(files, now, imported_by)

    assert found() == set()
    assert found(p_a="new") == {"p/a.py", "p/b.py"}
    assert found(p_d="new") == {"p/d.py"}
    assert check_types.to_check(files, {**files, "p/__init__.py": "new"}, imported_by) == {"p/__init__.py", "p/c.py"}
    assert check_types.to_check({**files, "p/gone.py": "5"}, files, imported_by) == {"p/a.py"}
    for before in ({}, {**files, "settings": "other"}):
        assert check_types.to_check(before, files, imported_by) == files.keys() - {"settings"}
    checked = check_types.sources()
    assert "lance_core/dataset.py" in checked
    assert not [path for path in checked if "_proto" in path]
    assert "lance_core/format/table/manifest.py" in check_types.importers()["lance_core.format.table.fragment_list"]
