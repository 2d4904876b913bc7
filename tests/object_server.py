"""As much of the services of Azure and Google Cloud as stores need: whole objects, conditions, ranges, listings.

Each object is written under a lock, and requests are written down. ``ignores_conditions`` makes it a service that does
not know the condition "only if the object does not exist"; ``loses_answers`` carries so many exclusive writes out
without an answer.
"""

import base64
import email
import json
import re
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class ObjectServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.reset()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def reset(self):
        self.objects = {}
        self.blocks = {}
        self.requests = []
        self.ignores_conditions = False
        self.loses_answers = 0

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Say nothing."""

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        with self.server.lock:
            self.server.requests.append((self.command, self.path))
            kind = google if "/storage/v1/" in parts.path else azure
            kind(self, parts.path, query, body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815 - names of the base class

    def create(self, key, data, *, is_exclusive):
        """Write an object; False if the condition does not hold, None if nobody shall learn of it."""
        if is_exclusive and key in self.server.objects and not self.server.ignores_conditions:
            return False
        self.server.objects[key] = (data, datetime.now(UTC))
        if is_exclusive and self.server.loses_answers:
            self.server.loses_answers -= 1
            return None
        return True

    def answer(self, status, content=b"", kind="application/json", **headers):
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Content-Length", headers.pop("size", len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def drop(self):
        self.close_connection = True
        self.connection.shutdown(2)

    def content(self, key, range_header, **headers):
        """Answer with (a part of) an object."""
        data, modified = self.server.objects[key]
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", range_header or "")
        part = data[int(found[1]) : int(found[2] or len(data)) + 1] if found else data
        if found and not part and data:
            self.answer(416)
            return
        if found:
            headers["Content_Range"] = f"bytes {found[1]}-{int(found[1]) + len(part) - 1}/{len(data)}"
        headers["Last_Modified"] = modified.strftime("%a, %d %b %Y %H:%M:%S GMT")
        if self.command == "HEAD":
            self.send_response(200)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), str(value))
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            return
        self.answer(206 if found else 200, part, "application/octet-stream", **headers)

    def below(self, prefix, delimiter):
        """Objects and folders whose names begin with a prefix."""
        names = sorted(key for key in self.server.objects if key.startswith(prefix))
        if not delimiter:
            return names, []
        folders = {name[: name.index(delimiter, len(prefix)) + 1] for name in names if delimiter in name[len(prefix) :]}
        return [name for name in names if delimiter not in name[len(prefix) :]], sorted(folders)


def azure(request, path, query, body):
    """Blob service: /{account}/{container}/{blob}."""
    _, _, container, *rest = unquote(path).split("/", 3)
    key = f"{container}/{rest[0]}" if rest else ""
    found = request.server.objects.get(key)
    headers = {"x_ms_version": "2021-12-02", "ETag": '"1"', "x_ms_request_id": "1", "x_ms_blob_type": "BlockBlob"}
    if query.get("restype") == "container":
        if query.get("comp") != "list":
            request.answer(200, Last_Modified="Thu, 01 Jan 2026 00:00:00 GMT", **headers)
            return
        prefix = f"{container}/{query.get('prefix', '')}"
        blobs, folders = request.below(prefix, query.get("delimiter"))
        items = [azure_item(name.partition("/")[2], *request.server.objects[name]) for name in blobs]
        items += [f"<BlobPrefix><Name>{escape(name.partition('/')[2])}</Name></BlobPrefix>" for name in folders]
        text = f'<EnumerationResults ContainerName="{container}"><Blobs>{"".join(items)}</Blobs></EnumerationResults>'
        request.answer(200, f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode(), "application/xml", **headers)
    elif request.command == "PUT":
        is_exclusive = request.headers.get("If-None-Match") == "*"
        if query.get("comp") == "block":
            request.server.blocks[key, query["blockid"]] = body
            request.answer(201, **headers)
            return
        if query.get("comp") == "blocklist":
            ids = re.findall(r"<(?:Latest|Uncommitted)>(.*?)</", body.decode())
            body = b"".join(request.server.blocks.pop((key, one)) for one in ids)
        done = request.create(key, body, is_exclusive=is_exclusive)
        if done is None:
            request.drop()
        elif done:
            request.answer(201, Last_Modified="Thu, 01 Jan 2026 00:00:00 GMT", **headers)
        else:
            request.answer(409, x_ms_error_code="BlobAlreadyExists", **headers)
    elif found is None:
        request.answer(404, x_ms_error_code="BlobNotFound", **headers)
    elif request.command == "DELETE":
        del request.server.objects[key]
        request.answer(202, **headers)
    else:
        request.content(key, request.headers.get("x-ms-range") or request.headers.get("Range"), **headers)


def azure_item(name, data, modified):
    stamp = modified.strftime("%a, %d %b %Y %H:%M:%S GMT")
    properties = f"<Last-Modified>{stamp}</Last-Modified><Content-Length>{len(data)}</Content-Length>"
    return (
        f"<Blob><Name>{escape(name)}</Name><Properties>{properties}<BlobType>BlockBlob</BlobType></Properties></Blob>"
    )


def google(request, path, query, body):
    """JSON service: /storage/v1/b/{bucket}/o/{object}, with /upload or /download in front."""
    where, _, rest = path.partition("/storage/v1/b/")
    bucket, is_object, name = rest.partition("/o")
    key = f"{bucket}/{unquote(name[1:])}" if name.strip("/") else ""
    if query.get("uploadType") == "resumable":
        where = f"{request.server.endpoint}/upload/storage/v1/b/{bucket}/o?resumes={query['name']}"
        request.answer(200, Location=where)
    elif "resumes" in query:
        key = f"{bucket}/{query['resumes']}"
        start, end, total = map(int, re.findall(r"\d+", request.headers["Content-Range"]))
        data = request.server.blocks.get(key, b"")[:start] + body
        request.server.blocks[key] = data
        if end + 1 < total:
            request.answer(308, Range=f"bytes=0-{end}")
            return
        request.create(key, request.server.blocks.pop(key), is_exclusive=False)
        request.answer(200, json.dumps(google_item(request, key)).encode())
    elif where == "/upload":
        message = email.message_from_bytes(b"Content-Type: multipart/related; boundary===0==\n\n" + body)
        metadata, _ = message.get_payload()
        data = body.split(b"\nContent-Type: application/octet-stream\n\n", 1)[1].removesuffix(b"\n--==0==--")
        key = f"{bucket}/{json.loads(metadata.get_payload())['name']}"
        done = request.create(key, data, is_exclusive=query.get("ifGenerationMatch") == "0")
        if done is None:
            request.drop()
        elif done:
            request.answer(200, json.dumps(google_item(request, key)).encode())
        else:
            request.answer(412, b'{"error": {"code": 412, "message": "conditionNotMet"}}')
    elif not key and is_object:
        blobs, folders = request.below(f"{bucket}/{query.get('prefix', '')}", query.get("delimiter"))
        items = [google_item(request, one) for one in blobs]
        answer = {"items": items, "prefixes": [one.partition("/")[2] for one in folders]}
        request.answer(200, json.dumps(answer).encode())
    elif not key:
        request.answer(200, json.dumps({"name": bucket, "storageClass": "STANDARD", "locationType": "region"}).encode())
    elif key not in request.server.objects:
        request.answer(404, b'{"error": {"code": 404, "message": "Not Found"}}')
    elif request.command == "DELETE":
        del request.server.objects[key]
        request.answer(204)
    elif query.get("alt") == "media" or where == "/download":
        request.content(key, request.headers.get("Range"))
    else:
        request.answer(200, json.dumps(google_item(request, key)).encode())


def google_item(request, key):
    data, modified = request.server.objects[key]
    bucket, _, name = key.partition("/")
    stamp = modified.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    item = {"kind": "storage#object", "bucket": bucket, "name": name, "size": str(len(data)), "generation": "1"}
    return {**item, "updated": stamp, "timeCreated": stamp, "md5Hash": base64.b64encode(bytes(16)).decode()}
