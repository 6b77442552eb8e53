"""The two sides as processes: ours is one for each round, a peer is one for all of them."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from cards import SEED, read_card, variants, weights_mib


class CannotRun(Exception):
    """Says why one side can't be measured. It becomes a line of the table, not an end of the run."""


def reason(error):
    """An exception in one line."""
    text = " ".join(str(error).split())[:200]
    return text if isinstance(error, CannotRun) else f"{type(error).__name__}: {text}"


def ending(status, errors):
    """Why a process ended, in one line: the signal, or the last line it wrote."""
    if status < 0:
        memory = ", which is what running out of memory looks like" if status == -signal.SIGKILL else ""
        return f"ended by {signal.Signals(-status).name}{memory}"
    lines = errors.split("\n") if (errors := errors.strip()) else [f"ended with status {status}"]
    return lines[-1].removeprefix("error: ")


def proc_mib(file, field):
    """A figure that Linux gives in kB, in MiB; none elsewhere."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(file).read_text(encoding="ascii").splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    return None


def expect_memory(row, processes):
    """Refuses weights that don't fit: running out of memory would end more than this program."""
    needed = processes * (weights_mib(read_card(variants()[row["model"]]), row["precision"]) + 1024)
    available = proc_mib("/proc/meminfo", "MemAvailable")
    if available is not None and needed > available:
        have = f"{available / 1024:.1f} GiB are available"
        who = "both sides need" if processes == 2 else "it needs"
        raise CannotRun(f"{who} about {needed / 1024:.1f} GiB of memory, {have}")


def run_ours(arguments, row):
    """One round of ours, from the report of `sapiens bench`."""
    expect_memory(row, 1)
    width, height = row["input"]
    command = [str(arguments.sapiens), "bench", "--variant", row["model"], "--precision", row["precision"]]
    command += ["--backend", "kernels", "--device", "cpu", "--threads", str(arguments.threads)]
    command += ["--input-size", f"width={width},height={height}", "--frame-size", f"{width}x{height}"]
    command += ["--generated-weights", str(SEED), "--warm-up", "1", "--frames", "1", "--json"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise CannotRun(ending(result.returncode, result.stderr))
        report = json.loads(result.stdout)
        return {
            "network_ms": report["steps"]["network"]["median"],
            "load_s": report["load_ms"] / 1e3,
            "first_frame_s": report["first_frame_ms"] / 1e3,
            "peak_memory_mib": report["peak_memory_mib"],
            "processor": report["processor"],
            "backend": report["backend"],
        }
    except (OSError, ValueError, KeyError) as error:
        raise CannotRun(f"no report from `sapiens bench`: {reason(error)}") from error


class Peer:
    """A peer's process, seen from outside. For an answer there is `CannotRun` where it says why, or ends."""

    def __init__(self, arguments, row):
        expect_memory(row, 2)
        command = [sys.executable, str(pathlib.Path(__file__).parent), "--peer", row["who"]]
        command += ["--variant", row["model"], "--input", "{}x{}".format(*row["input"])]
        command += ["--threads", str(arguments.threads)]
        self.scratch = tempfile.TemporaryDirectory(prefix="peer-bench-")
        self.errors = pathlib.Path(self.scratch.name, "errors")
        # A compiler's cache of its own, empty: the first frame then always takes what it takes.
        environment = {"TORCHINDUCTOR_CACHE_DIR": self.scratch.name, **os.environ}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, text=True, stderr=errors, env=environment, **pipes)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise CannotRun(ending(self.process.wait(), self.errors.read_text(errors="replace")))
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise CannotRun(answer["error"])
        return answer

    def frame_ms(self):
        # Where nobody reads any more there is no answer either, and that says why.
        with contextlib.suppress(BrokenPipeError):
            print("frame", file=self.process.stdin, flush=True)
        return self.answer()

    def close(self):
        """Ends the process and waits for it: its memory and its threads are gone afterwards."""
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        self.scratch.cleanup()
