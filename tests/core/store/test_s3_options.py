import pytest

from lance_core.errors import InvalidInputError
from lance_core.store.cloud.s3_options import S3Options, parse_s3_options

KEYS = {"aws_access_key_id": "name", "aws_secret_access_key": "hidden"}


def test_names_of_pylance():
    parsed = parse_s3_options(
        {
            **KEYS,
            "aws_session_token": "token",
            "AWS_REGION": "eu-west-1",
            "aws_endpoint": "http://localhost:9000",
            "allow_http": "true",
            "aws_virtual_hosted_style_request": "false",
            "aws_skip_signature": "0",
            "timeout": "2m",
            "connect_timeout": "500ms",
            "client_max_retries": "3",
            "aws_server_side_encryption": "aws:kms",
            "aws_sse_kms_key_id": "key",
        }
    )
    assert parsed == S3Options(
        access_key_id="name",
        secret_access_key="hidden",  # noqa: S106 - not a real one
        session_token="token",  # noqa: S106 - likewise
        region="eu-west-1",
        endpoint="http://localhost:9000",
        allow_http=True,
        virtual_hosted_style_request=False,
        request_timeout=120.0,
        connect_timeout=0.5,
        client_max_retries=3,
        server_side_encryption="aws:kms",
        sse_kms_key_id="key",
    )


def test_nothing_given_leaves_all_to_the_environment():
    assert parse_s3_options(None) == parse_s3_options({}) == S3Options()


@pytest.mark.parametrize("name", ["endpoint", "aws_endpoint", "endpoint_url", "aws_endpoint_url", "ENDPOINT_URL"])
def test_synonyms(name):
    assert parse_s3_options({name: "https://s3.example"}).endpoint == "https://s3.example"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aws_acess_key_id": "x"}, "unknown storage option 'aws_acess_key_id'"),
        ({"account_name": "x"}, "unknown storage option 'account_name'"),
        ({"aws_access_key_id": "x"}, "together"),
        ({"region": "a", "aws_region": "b"}, "given twice"),
        ({"allow_http": "perhaps"}, "cannot parse the value .*'allow_http'"),
        ({"timeout": "soon"}, "cannot parse the value .*'timeout'"),
        ({"client_max_retries": "many"}, "cannot parse the value .*'client_max_retries'"),
        ({"endpoint": "localhost:9000"}, "http:// or https://"),
        ({"endpoint": "http://localhost:9000"}, "allow_http"),
        ({"endpoint": "HTTP://localhost:9000", "allow_http": "false"}, "allow_http"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(InvalidInputError, match=message):
        parse_s3_options(options)


def test_secrets_stay_secret():
    assert "hidden" not in repr(parse_s3_options(KEYS))
    with pytest.raises(InvalidInputError) as caught:
        parse_s3_options({"aws_secret_access_key": "hidden"})
    assert "hidden" not in str(caught.value)
    with pytest.raises(InvalidInputError) as caught:
        parse_s3_options({**KEYS, "secret_access_key": "hidden too"})
    assert "hidden" not in str(caught.value)
