"""As much of Azure's Blob service and of Google Cloud's XML service as stores need, which fails on demand.

Each request is answered under a lock and written down. Faults are those of `tests/s3_server.py`.
"""

import contextlib
import re
import threading
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ACCOUNT, KEY = "account", "a2V5a2V5a2V5a2V5"
PAGE = 1000
STALL_S = 30
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
MARKS = ("x-ms-meta-", "x-goog-meta-")


@dataclass(kw_only=True)
class StoredObject:
    data: bytes
    headers: dict = field(default_factory=dict)
    modified: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def stamp(self):
        return self.modified.strftime("%a, %d %b %Y %H:%M:%S GMT")


class ObjectServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.objects, self.uploads, self.seen, self.faults = {}, {}, [], []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        """Say nothing of clients that went away."""

    def mode(self, method, path):
        """What goes wrong with a request."""
        for fault in self.faults:
            if fault["method"] in {"", method} and fault["contains"] in path:
                if fault.get("skip", 0):
                    fault["skip"] -= 1
                elif fault.get("times", 1):
                    fault["times"] = fault.get("times", 1) - 1
                    return fault["mode"]
        return ""


@dataclass(frozen=True, kw_only=True)
class CloudPlace:
    """A new, empty bucket or container of the server; asks and fails as the fixture `s3` does."""

    server: ObjectServer
    uri: str
    storage_options: dict

    def fail(self, method, contains, mode, **more):
        self._post("faults", [{"method": method, "contains": contains, "mode": mode, **more}])

    def requests(self):
        """Requests since the last call: (method, path and query)."""
        with self.server.lock:
            seen, self.server.seen = self.server.seen, []
        return seen

    def _post(self, what, content):
        assert what == "faults"
        with self.server.lock:
            self.server.faults = [dict(fault) for fault in content]

    @property
    def uploads(self):
        """Number of Google's uploads that are neither finished nor aborted."""
        return sum("metadata" in parts for parts in self.server.uploads.values())


def place(server, kind):
    """A new bucket for Google Cloud (``gs``), or a container for Azure (``az``), on a server without faults."""
    with server.lock:
        server.objects, server.uploads, server.seen, server.faults = {}, {}, [], []
    name = f"bucket-{uuid.uuid4().hex}"
    if kind == "gs":
        options = {"google_bearer_token": "token", "google_base_url": server.endpoint}
    else:
        options = {"azure_storage_account_name": ACCOUNT, "azure_storage_account_key": KEY}
        options["azure_endpoint"] = f"{server.endpoint}/{ACCOUNT}"
    return CloudPlace(server=server, uri=f"{kind}://{name}", storage_options={**options, "allow_http": "true"})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        """Say nothing."""

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(self.path)
        with self.server.lock:
            self.server.seen.append((self.command, path))
            mode = self.server.mode(self.command, path)
        if mode == "stall":
            time.sleep(STALL_S)
            mode = ""
        is_late, mode = mode == "late-answer", mode.removeprefix("late-answer")
        with self.server.lock:
            answer = (204, {}, b"")
            if not mode.startswith("before"):
                answer = self.carry_out(body, mode)
        if is_late:
            time.sleep(STALL_S)
        if mode.endswith("drop"):
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(2)
            return
        if mode.startswith(("before", "after")):
            content = SLOW_DOWN if mode == "before-slow-503" else b""
            answer = (int(mode[-3:]), {}, content)
        self.answer(*answer)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815 - names of the base class

    def carry_out(self, body, mode):
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        if mode == "ignore-condition":
            headers = {name: value for name, value in headers.items() if "match" not in name}
        if mode == "ignore-metadata":
            headers = {name: value for name, value in headers.items() if not name.startswith(MARKS)}
        service = Azure if parts.path.startswith(f"/{ACCOUNT}/") else Google
        key = unquote(parts.path).removeprefix(f"/{ACCOUNT}" if service is Azure else "").lstrip("/")
        return service(self.server, self.command, key, query, headers).answer(body)

    def answer(self, status, headers, content):
        self.send_response(status)
        for name, value in {"Content-Length": len(content), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@dataclass
class Service:
    """What both services have in common: an answer is a status, headers, and content."""

    server: ObjectServer
    method: str
    key: str
    query: dict
    headers: dict

    def metadata(self):
        return {name: value for name, value in self.headers.items() if name.startswith(MARKS)}

    def create(self, data, *, is_exclusive, metadata=None):
        """Write an object; False if the condition does not hold."""
        if is_exclusive and self.key in self.server.objects:
            return False
        self.server.objects[self.key] = StoredObject(data=data, headers=metadata or self.metadata())
        return True

    def content(self, **headers):
        """Answer with (a part of) an object."""
        found = self.server.objects.get(self.key)
        if found is None:
            return 404, {}, b""
        data = found.data
        headers |= {"ETag": '"1"', "Last-Modified": found.stamp, **found.headers}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("x-ms-range") or self.headers.get("range") or "")
        if asked is None:
            if self.method == "HEAD":
                return 200, {**headers, "Content-Length": len(data)}, b""
            return 200, headers, data
        start = int(asked[1]) if asked[1] else max(0, len(data) - int(asked[2]))
        end = min(int(asked[2]) + 1, len(data)) if asked[1] and asked[2] else len(data)
        if start >= len(data):
            return 416, {"Content-Range": f"bytes */{len(data)}"}, b""
        return 206, {**headers, "Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}, data[start:end]

    def listed(self, bucket, marker):
        """Return objects and folders whose names begin with a prefix, and the name after which a page ends."""
        prefix, delimiter = f"{bucket}/{self.query.get('prefix', '')}", self.query.get("delimiter")
        found = sorted(name for name in self.server.objects if name.startswith(prefix) and name > marker)
        if not delimiter:
            return found[:PAGE], [], found[PAGE - 1] if len(found) > PAGE else ""
        below = {name: name[len(prefix) :] for name in found}
        folders = {prefix + rest.partition(delimiter)[0] + delimiter for rest in below.values() if delimiter in rest}
        return [name for name, rest in below.items() if delimiter not in rest], sorted(folders), ""

    def remove(self, status):
        if self.server.objects.pop(self.key, None) is None:
            return 404, {}, b""
        return status, {}, b""


class Azure(Service):
    """Blob service: /{account}/{container}/{blob}."""

    def answer(self, body):
        match self.method, self.query.get("comp"):
            case "GET", "list":
                return self.listing()
            case "POST", "batch":
                return self.batch(body)
            case "PUT", "block":
                self.server.uploads.setdefault(self.key, {})[self.query["blockid"]] = body
                return 201, {}, b""
            case "PUT", "blocklist":
                ids = re.findall(r"<(?:Latest|Uncommitted)>(.*?)</", body.decode())
                blocks = self.server.uploads.pop(self.key, {})
                if any(id_ not in blocks for id_ in ids):
                    return 400, {}, b"<Error><Code>InvalidBlockList</Code><Message>Unknown block.</Message></Error>"
                return self.put(b"".join(blocks[id_] for id_ in ids))
            case "PUT", _:
                return self.put(body)
            case "DELETE", _:
                return self.remove(202)
        return self.content(**{"x-ms-blob-type": "BlockBlob"})

    def put(self, body):
        names = [name.removeprefix("x-ms-meta-") for name in self.metadata()]
        if not all(name.isidentifier() for name in names):
            return 400, {}, b"<Error><Code>InvalidMetadata</Code><Message>No identifier.</Message></Error>"
        if self.create(body, is_exclusive=self.headers.get("if-none-match") == "*"):
            return 201, {"ETag": '"1"'}, b""
        return 409, {}, b"<Error><Code>BlobAlreadyExists</Code><Message>It exists.</Message></Error>"

    def batch(self, body):
        boundary, parts = "answers", []
        for number, path in enumerate(re.findall(r"^DELETE (\S+) HTTP", body.decode(), re.MULTILINE)):
            key = unquote(path).removeprefix(f"/{ACCOUNT}").lstrip("/")
            status = Azure(self.server, "DELETE", key, {}, {}).remove(202)[0]
            said = "Accepted" if status == 202 else "Not Found"
            code = "" if status == 202 else "x-ms-error-code: BlobNotFound\r\n"
            head = f"--{boundary}\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
            parts.append(f"{head}HTTP/1.1 {status} {said}\r\n{code}x-ms-version: 2023-11-03\r\n\r\n")
        content = "".join([*parts, f"--{boundary}--\r\n"]).encode()
        return 202, {"Content-Type": f"multipart/mixed; boundary={boundary}"}, content

    def listing(self):
        blobs, folders, end = self.listed(self.key, self.query.get("marker", ""))
        items = [azure_item(name.partition("/")[2], self.server.objects[name]) for name in blobs]
        items += [f"<BlobPrefix><Name>{escape(name.partition('/')[2])}</Name></BlobPrefix>" for name in folders]
        text = f"<Blobs>{''.join(items)}</Blobs><NextMarker>{escape(end)}</NextMarker>"
        text = f'<EnumerationResults ContainerName="{self.key}">{text}</EnumerationResults>'
        return 200, {"Content-Type": "application/xml"}, f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode()


def azure_item(name, found):
    properties = f"<Last-Modified>{found.stamp}</Last-Modified><Content-Length>{len(found.data)}</Content-Length>"
    properties += "<Content-Type>x</Content-Type><Etag>1</Etag><BlobType>BlockBlob</BlobType>"
    return f"<Blob><Name>{escape(name)}</Name><Properties>{properties}</Properties></Blob>"


class Google(Service):
    """XML service: /{bucket}/{object}."""

    def answer(self, body):
        upload = self.query.get("uploadId")
        match self.method:
            case "GET" if "list-type" in self.query:
                return self.listing()
            case "POST" if "uploads" in self.query:
                upload = uuid.uuid4().hex
                self.server.uploads[upload] = {"metadata": self.metadata()}
                return 200, {}, f"<Result><UploadId>{upload}</UploadId></Result>".encode()
            case "POST":
                parts = self.server.uploads.pop(upload, None)
                if parts is None:
                    return 404, {}, b"<Error><Code>NoSuchUpload</Code></Error>"
                metadata = parts.pop("metadata")
                self.create(b"".join(parts[number] for number in sorted(parts)), is_exclusive=False, metadata=metadata)
                return 200, {}, b"<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>"
            case "PUT" if upload is not None:
                self.server.uploads[upload][int(self.query["partNumber"])] = body
                return 200, {"ETag": '"1"'}, b""
            case "PUT":
                if self.create(body, is_exclusive=self.headers.get("x-goog-if-generation-match") == "0"):
                    return 200, {"ETag": '"1"', "x-goog-generation": "1"}, b""
                return 412, {}, b"<Error><Code>PreconditionFailed</Code><Message>It exists.</Message></Error>"
            case "DELETE" if upload is not None:
                self.server.uploads.pop(upload, None)
                return 204, {}, b""
            case "DELETE":
                return self.remove(204)
        return self.content(**{"x-goog-generation": "1"})

    def listing(self):
        names, folders, end = self.listed(self.key, self.query.get("continuation-token", ""))
        items = [google_item(name.partition("/")[2], self.server.objects[name]) for name in names]
        items += [
            f"<CommonPrefixes><Prefix>{escape(name.partition('/')[2])}</Prefix></CommonPrefixes>" for name in folders
        ]
        more = f"<NextContinuationToken>{escape(end)}</NextContinuationToken>" if end else ""
        return 200, {}, f"<ListBucketResult>{''.join(items)}{more}</ListBucketResult>".encode()


def google_item(name, found):
    stamp = found.modified.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    size = f"<Size>{len(found.data)}</Size>"
    return f"<Contents><Key>{escape(name)}</Key><LastModified>{stamp}</LastModified>{size}<ETag>1</ETag></Contents>"
