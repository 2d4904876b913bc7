"""The page about object stores names exactly the options that there are, and its Python blocks run."""

import re
from pathlib import Path

import pytest

from lance_core.store.cloud.azure_options import AzureOptions
from lance_core.store.cloud.client_options import ClientOptions, converters_of
from lance_core.store.cloud.google_options import GoogleOptions
from lance_core.store.cloud.s3_options import S3Options

PAGE = (Path(__file__).parents[2] / "docs" / "object-stores.md").read_text()
SERVICES = {
    "every service": ClientOptions,
    "S3": S3Options,
    "Google Cloud Storage": GoogleOptions,
    "Azure": AzureOptions,
}


@pytest.mark.parametrize("service", SERVICES)
def test_the_table_has_all_options(service):
    settings = PAGE.partition("## Settings")[2].partition("\n## ")[0]
    row = re.search(rf"^\| {service} \| (.*) \|$", settings, re.MULTILINE)[1]
    options = list(converters_of(SERVICES[service]))
    shared = set() if service == "every service" else set(converters_of(ClientOptions))
    assert re.findall(r"`(\w+)`", row) == [name for name in options if name not in shared]


def test_blocks_run():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})  # noqa: S102 our own page
