"""Page faults of a process that takes and frees memory as tasks do."""

import platform
import subprocess
import sys

import pytest

# A process that takes and frees 16 MiB again and again, in blocks as large as a batch, and prints its page faults.
PROGRAM = """
import resource, sys
from lance_core.spark.task_memory import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
for number in range(6):
    if number == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytearray(1 << 20) for _ in range(16)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how):
    answer = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(answer.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")
def test_freed_memory_is_used_again():
    assert faults("keep") < 200 < faults("give back")
