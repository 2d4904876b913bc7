"""A real S3-compatible server for deep tests: Ceph's radosgw over one OSD that keeps its objects in memory.

Debian's packages `ceph-mon`, `ceph-osd` and `radosgw` bring it; nothing needs to be configured, and nothing is left on
the machine. The gateway can be killed and started again: the objects stay in the OSD.
"""

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import boto3

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool", "ceph")
KEY, SECRET = "test-key", "test-secret-of-nobody"
CONFIGURATION = """
[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{mon_port}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
run dir = {folder}
admin socket = {folder}/$name.asok
log file = {folder}/$name.log
pid file = {folder}/$name.pid
mon data = {folder}/mon
mon data avail crit = 1
mon allow pool size one = true
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 4294967296
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd class load list = *
osd class default list = *
mon max pg per osd = 1000
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw dynamic resharding = false
"""


def missing_programs():
    """Programs of Ceph that this machine has not."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class RadosGateway:
    """A cluster of one monitor, one OSD and one gateway; `stop` ends it.

    Args:
        folder: For configuration and logs; short, because sockets lie in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes = []
        self.port = free_port()
        fsid, mon_port = str(uuid.uuid4()), free_port()
        settings = {"fsid": fsid, "mon_port": mon_port, "port": self.port, "folder": folder}
        (folder / "ceph.conf").write_text(CONFIGURATION.format(**settings))
        try:
            self._start_cluster(fsid, mon_port)
            self._run("radosgw-admin", "user", "create", "--uid=test", "--display-name=test", *self._keys())
            self.start_gateway()
        except BaseException:
            self.stop()
            raise

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def storage_options(self):
        return {
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_endpoint": self.endpoint,
            "aws_region": "us-east-1",
            "allow_http": "true",
        }

    def create_bucket(self, bucket):
        keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
        client = boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1", **keys)
        client.create_bucket(Bucket=bucket)

    def _start_cluster(self, fsid, mon_port):
        monmap, osd = str(self._folder / "monmap"), str(uuid.uuid4())
        self._run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v1:127.0.0.1:{mon_port}]", monmap)
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        self._start("ceph-mon", "-i", "a", "-f")
        self._run("ceph", "osd", "new", osd)
        (self._folder / "osd").mkdir()
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self._osd = self._start("ceph-osd", "-i", "0", "-f")
        self._wait(self._is_osd_up)

    def _is_osd_up(self):
        if self._osd.poll() is not None:  # it ends if it asks the monitor before it knows the cluster's id
            self._osd = self._start("ceph-osd", "-i", "0", "-f")
        return "1 up" in self._run("ceph", "osd", "stat")

    def start_gateway(self):
        self._gateway = self._start("radosgw", "-n", "client.rgw", "-f")
        self._wait(self._is_listening)

    def kill_gateway(self):
        self._gateway.kill()
        self._gateway.wait()

    def stop(self):
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes = []

    def _is_listening(self):
        try:
            with urllib.request.urlopen(self.endpoint, timeout=5):  # noqa: S310 ours
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    @staticmethod
    def _keys():
        return f"--access-key={KEY}", f"--secret-key={SECRET}"

    @staticmethod
    def _wait(is_done):
        end = time.monotonic() + 60
        while not is_done():
            if time.monotonic() > end:
                raise TimeoutError("Ceph does not start")
            time.sleep(0.1)

    def _run(self, program, *arguments):
        command = [program, "-c", str(self._folder / "ceph.conf"), *arguments]
        if program == "monmaptool":
            command = [program, *arguments]
        environment = {**os.environ, "CEPH_CONF": str(self._folder / "ceph.conf")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr[-2000:]}")
        return done.stdout

    def _start(self, program, *arguments):
        command = [program, "-c", str(self._folder / "ceph.conf"), *arguments]
        with (self._folder / f"{program}.out").open("ab") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self._processes.append(process)
        return process
