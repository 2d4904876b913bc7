"""An S3 and DynamoDB service for tests: moto behind a lock, which fails on demand and writes down what it was asked.

moto looks whether an object exists and then writes it, so that of two writers with a condition both may win; the lock
makes it keep the promise. Prints its address, and ends when its standard input does. The path of a request to
DynamoDB ends in its operation.

    POST /_test/faults   JSON list of {"method", "contains", "mode", "skip", "times"}; replaces the earlier ones.
                         Requests of mode "held" are answered when that happens; those of mode "stall" have their effect
                         after 30 s, those of mode "late-answer" at once, and are answered after 30 s
    POST /_test/objects  JSON list of a bucket and the content of objects by key; puts them all
    POST /_test/requests answers with the requests since the last time, as JSON list of [method, path]
"""

import contextlib
import io
import json
import socket
import sys
import threading
import time

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
STALL_S = 30


class Service:
    def __init__(self):
        self.moto = DomainDispatcherApplication(create_backend_app)
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.num_changes = 0
        self.faults = []
        self.requests = []

    def __call__(self, environ, start_response):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        path = environ["PATH_INFO"]
        with self.lock:
            mode = "" if path.startswith("/_test/") else self.noted(environ, path)
            num_changes = self.num_changes
        if mode == "stall":
            time.sleep(STALL_S)
            mode = ""
        with self.lock:
            if path.startswith("/_test/"):
                return self.control(path, body, start_response)
            if mode == "held":
                self.changed.wait_for(lambda: self.num_changes > num_changes)
                mode = ""
            content = self.answer(environ, start_response, mode.removeprefix("late-answer"))
        if mode == "late-answer":
            time.sleep(STALL_S)
        return content

    def noted(self, environ, path):
        """Write a request down; what goes wrong with it."""
        path += environ.get("HTTP_X_AMZ_TARGET", "")
        query = environ.get("QUERY_STRING", "")
        self.requests.append((environ["REQUEST_METHOD"], f"{path}?{query}" if query else path))
        return self.mode(*self.requests[-1])

    def control(self, path, body, start_response):
        answer = []
        if path == "/_test/faults":
            self.faults = json.loads(body)
            self.num_changes += 1
            self.changed.notify_all()
        elif path == "/_test/objects":
            bucket, content = json.loads(body)
            for key, text in content.items():
                s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, key, text.encode())
        else:
            answer, self.requests = self.requests, []
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]

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

    def answer(self, environ, start_response, mode):
        if mode == "ignore-condition":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if mode == "ignore-metadata":
            environ.pop("HTTP_X_AMZ_META_LANCECOREWRITER", None)
        if mode in {"", "ignore-condition", "ignore-metadata"} or mode.startswith("after"):
            content = list(self.moto(environ, start_response if not mode.startswith("after") else lambda *_: None))
            if not mode.startswith("after"):
                return content
        if mode.endswith("drop"):
            with contextlib.suppress(OSError):
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionError("dropped on demand")
        content = SLOW_DOWN if mode == "before-slow-503" else b""
        start_response(f"{mode[-3:]} on demand", [("Content-Length", str(len(content)))])
        return [content]


def main():
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    server = make_server("127.0.0.1", 0, Service(), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.port}", flush=True)  # noqa: T201 - that is how it tells
    sys.stdin.read()


if __name__ == "__main__":
    main()
