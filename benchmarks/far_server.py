"""An S3-compatible service in memory whose answers take as long as a real one's. It counts what it is asked.

    python benchmarks/far_server.py            prints its address; ends when its standard input does

Each answer begins after `latency_s`, and a connection carries `rate` bytes a second. A share of the answers can be a
503, a dropped connection or a stall. Objects are created on the condition `If-None-Match: *`, as S3 does it.
Signatures are not checked.

    POST /_far   JSON: {"settings": {...}} changes `Settings`, {"copy": [from, to]} copies the objects below a prefix,
                 {"forget": prefix} removes them, {"stats": true} answers with what was asked since the last time
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import sys
import time
from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from email.utils import formatdate
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape, unescape

_CHUNK = 1 << 18
_MAX_KEYS = 1000
_REASONS = {200: "OK", 204: "No Content", 206: "Partial Content", 404: "Not Found", 412: "Precondition Failed"}
_NO_SUCH_KEY = b"<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"
_EXISTS = b"<Error><Code>PreconditionFailed</Code><Message>The object exists.</Message></Error>"
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@dataclass(slots=True)
class Settings:
    """How the service behaves.

    Attributes:
        latency_s: Seconds before the first byte of an answer.
        rate: Bytes per second of one connection; 0 for as many as there can be.
        unavailable: Share of the requests that are answered with 503 and have no effect.
        dropped: Share whose connection is closed after they had their effect.
        stalled: Share whose answer takes `stall_s` more.
        stall_s: Seconds.
        seed: Of the shares.
    """

    latency_s: float = 0.0
    rate: float = 0.0
    unavailable: float = 0.0
    dropped: float = 0.0
    stalled: float = 0.0
    stall_s: float = 10.0
    seed: int = 0


@dataclass(slots=True)
class Stored:
    """One object."""

    data: bytes
    headers: dict[str, str]
    etag: str
    modified: float


@dataclass(slots=True)
class Request:
    """One request."""

    method: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Answer:
    """What is sent back; a HEAD request has the size of a body that is not sent."""

    status: int = 200
    body: bytes | memoryview = b""
    headers: dict[str, str] = field(default_factory=dict)
    size: int | None = None


class Service:
    """The objects, by bucket and key, and what was asked for them."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.numbers = itertools.count(1)
        self.dice = random.Random(0)
        self.asked: list[tuple[float, float, int]] = []

    # ------------------------------------------------------------------------------------------------------ answering

    def answer(self, request: Request) -> Answer:
        """Carry out a request."""
        query = request.query
        match request.method:
            case "GET" if "list-type" in query:
                return self._list(request.key.partition("/")[0], query)
            case "GET" | "HEAD":
                return self._get(request)
            case "PUT" if "uploadId" in query:
                self.uploads[query["uploadId"]][int(query["partNumber"])] = request.body
                return Answer(headers={"ETag": f'"{next(self.numbers)}"'})
            case "PUT":
                return self._put(request.key, request.body, request.headers)
            case "POST" if "uploads" in query:
                upload = str(next(self.numbers))
                self.uploads[upload] = {}
                inner = f"<UploadId>{upload}</UploadId>"
                return _xml(f"<InitiateMultipartUploadResult>{inner}</InitiateMultipartUploadResult>")
            case "POST" if "uploadId" in query:
                parts = self.uploads.pop(query["uploadId"])
                self._put(request.key, b"".join(parts[number] for number in sorted(parts)), request.headers)
                return _xml("<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")
            case "POST":
                keys = re.findall(r"<Key>(.*?)</Key>", request.body.decode())
                for key in keys:
                    self.objects.pop(f"{request.key.rstrip('/')}/{unescape(key)}", None)
                deleted = "".join([f"<Deleted><Key>{key}</Key></Deleted>" for key in keys])
                return _xml(f"<DeleteResult>{deleted}</DeleteResult>")
            case _:
                self.objects.pop(request.key, None)
                self.uploads.pop(query.get("uploadId", ""), None)
                return Answer(204)

    def _get(self, request: Request) -> Answer:
        stored = self.objects.get(request.key)
        if stored is None:
            return Answer(404, b"" if request.method == "HEAD" else _NO_SUCH_KEY)
        size = len(stored.data)
        headers = {**stored.headers, "ETag": stored.etag, "Last-Modified": formatdate(stored.modified, usegmt=True)}
        if request.method == "HEAD":
            return Answer(200, b"", headers, size)
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if match is None or not size:
            return Answer(200, stored.data, headers)
        start = int(match[1]) if match[1] else max(size - int(match[2]), 0)
        end = min(int(match[2]) + 1, size) if match[1] and match[2] else size
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return Answer(206, memoryview(stored.data)[start:end], headers)

    def _put(self, key: str, data: bytes, headers: dict[str, str]) -> Answer:
        if headers.get("if-none-match") == "*" and key in self.objects:
            return Answer(412, _EXISTS)
        marks = {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}
        stored = Stored(data, marks, f'"{next(self.numbers)}"', time.time())
        self.objects[key] = stored
        return Answer(headers={"ETag": stored.etag})

    def _list(self, bucket: str, query: dict[str, str]) -> Answer:
        prefix, delimiter = f"{bucket}/{query.get('prefix', '')}", query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        keys = sorted(key for key in self.objects if key.startswith(prefix))
        contents, folders, last, is_cut = [], {}, "", False
        for key in keys[bisect_right(keys, f"{bucket}/{after}") if after else 0 :]:
            if len(contents) + len(folders) >= int(query.get("max-keys", _MAX_KEYS)):
                is_cut = True
                break
            last = key.partition("/")[2]
            name = key[len(prefix) :]
            if delimiter and delimiter in name:
                folders[f"{query.get('prefix', '')}{name.partition(delimiter)[0]}{delimiter}"] = None
                continue
            stored = self.objects[key]
            modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stored.modified))
            contents.append(
                f"<Contents><Key>{escape(last)}</Key><LastModified>{modified}</LastModified>"
                f"<ETag>{escape(stored.etag)}</ETag><Size>{len(stored.data)}</Size></Contents>"
            )
        parts = [f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders]
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if is_cut else ""
        told = f"<IsTruncated>{str(is_cut).lower()}</IsTruncated><KeyCount>{len(contents)}</KeyCount>{token}"
        return _xml(f"<ListBucketResult>{told}{''.join(contents)}{''.join(parts)}</ListBucketResult>")

    # ------------------------------------------------------------------------------------------------------- counting

    def control(self, wish: dict[str, object]) -> bytes:
        """Change settings, copy or forget objects, or tell what was asked."""
        if isinstance(settings := wish.get("settings"), dict):
            self.settings = Settings(**{**asdict(self.settings), **settings})
            self.dice = random.Random(self.settings.seed)
        if isinstance(copied := wish.get("copy"), list):
            source, target = copied
            self.objects |= {
                target + key[len(source) :]: stored for key, stored in self.objects.items() if key.startswith(source)
            }
        if isinstance(prefix := wish.get("forget"), str):
            self.objects = {key: stored for key, stored in self.objects.items() if not key.startswith(prefix)}
        if not wish.get("stats"):
            return b"{}"
        asked, self.asked = self.asked, []
        num_bytes = sum(size for *_, size in asked)
        return json.dumps({"requests": len(asked), "rounds": _rounds(asked), "bytes": num_bytes}).encode()


def _rounds(asked: list[tuple[float, float, int]]) -> int:
    """Length of the longest chain of requests each of which began after the one before it had ended."""
    ends = sorted((end, begin) for begin, end, _ in asked)
    depth_of: dict[tuple[float, float], int] = {}
    best, at = 0, 0
    for begin, end, _ in sorted(asked):
        while at < len(ends) and ends[at][0] <= begin:
            best, at = max(best, depth_of.get(ends[at], 0)), at + 1
        depth_of[end, begin] = best + 1
    return max(depth_of.values(), default=0)


def _xml(text: str) -> Answer:
    return Answer(body=text.encode(), headers={"Content-Type": "application/xml"})


# ----------------------------------------------------------------------------------------------------------------- HTTP


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    path, _, query = target.partition("?")
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, unquote(path[1:]), dict(parse_qsl(query, keep_blank_values=True)), headers, body)


async def _send(writer: asyncio.StreamWriter, answer: Answer, rate: float) -> None:
    size = len(answer.body) if answer.size is None else answer.size
    lines = [f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Other')}", f"Content-Length: {size}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    began = time.monotonic()
    for start in range(0, len(answer.body), _CHUNK):
        writer.write(answer.body[start : start + _CHUNK])
        await writer.drain()
        if rate:
            sent = min(start + _CHUNK, len(answer.body))
            await asyncio.sleep(max(sent / rate - (time.monotonic() - began), 0))
    await writer.drain()


async def _converse(service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    try:
        while True:
            request = await _read(reader)
            began, settings = time.monotonic(), service.settings
            if request.key == "_far":
                await _send(writer, Answer(body=service.control(json.loads(request.body))), 0)
                continue
            await asyncio.sleep(settings.latency_s + (len(request.body) / settings.rate if settings.rate else 0))
            fate = service.dice.random()
            if fate < settings.unavailable:
                answer = Answer(503, _SLOW_DOWN)
            else:
                answer = service.answer(request)
                fate -= settings.unavailable
                if fate < settings.dropped:
                    return
                if fate < settings.dropped + settings.stalled:
                    await asyncio.sleep(settings.stall_s)
            await _send(writer, answer, settings.rate)
            service.asked.append((began, time.monotonic(), len(answer.body) + len(request.body)))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _serve() -> None:
    service = Service()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _converse(service, reader, writer)

    server = await asyncio.start_server(converse, "127.0.0.1", 0, limit=1 << 22)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)  # connections may still be open


if __name__ == "__main__":
    asyncio.run(_serve())
