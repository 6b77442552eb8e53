"""Compares the processor's kernels with PyTorch: one machine, one run, the same generated weights and input.

    cargo build --release --bin sapiens
    python3 -m pip install -r tools/peer_bench/requirements.txt
    python3 tools/peer_bench --check
    python3 tools/peer_bench --variant sapiens2-0.4b --input 384x512

Ours is `sapiens bench`, a process a round. A peer is PyTorch with a network written here for this purpose, or
transformers' own; it is one process for all rounds, which loads once and sleeps while ours runs. The rounds
alternate: ours, one peer. Each runs a frame unmeasured and measures the next.

OpenMP's threads sleep where they have nothing to do (OMP_WAIT_POLICY=PASSIVE, unless the environment says
otherwise). Where nothing else runs PyTorch may be faster with ACTIVE; beside other work it is far slower.

--variant, --input and --precision may be given repeatedly. Needs Python 3.11 or newer.
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys

from cards import PATCH, ROOT, SEED, read_card, variants
from compare import Comparison, print_report, say

PRECISIONS = ("bf16", "f32")
PEERS = tuple(f"{kind}-{one}" for kind in ("torch", "torch-compile", "transformers") for one in PRECISIONS)
CHECKED = ("torch-f32", "torch-bf16", "transformers-f32")
PROGRAM = ROOT / "target" / "release" / "sapiens"


def available_threads():
    """The processors that this process may use, with a container's share of them counted."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = map(int, pathlib.Path("/sys/fs/cgroup/cpu.max").read_text().split())
        return min(count, max(1, quota // period))
    except (OSError, ValueError):  # No such file, or a quota of "max".
        return count


def size(text):
    width, height = map(int, text.split("x"))
    if not all(side % PATCH == 0 and PATCH <= side <= 8192 for side in (width, height)):
        raise argparse.ArgumentTypeError(f"{text}: a side isn't a multiple of {PATCH} from {PATCH} to 8192")
    return width, height


def count(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a number from 1")
    return int(text)


def parse_arguments():
    about, more = __doc__.split("\n\n", 1)
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("peer_bench", description=about, epilog=more, formatter_class=raw)
    add, known = parser.add_argument, tuple(variants())
    text = f"a model of {', '.join(known)} (default: sapiens2-0.4b)"
    add("--variant", action="append", choices=known, metavar="NAME", help=text)
    add("--input", action="append", type=size, metavar="WxH", help="the network's (default: the card's)")
    text = "default: both, or those of the peers"
    add("--precision", action="append", choices=PRECISIONS, help=text)
    text = f"whom to compare with, of {', '.join(PEERS)} (default: all)"
    add("--peers", nargs="+", choices=PEERS, metavar="PEER", help=text)
    add("--rounds", type=count, default=3, metavar="N", help="default: 3")
    text = "processor threads of both sides (default: all there are)"
    add("--threads", type=count, default=available_threads(), metavar="N", help=text)
    add("--json", type=pathlib.Path, metavar="FILE", help="also write everything measured to FILE")
    text = "our program (default: target/release/sapiens)"
    add("--sapiens", type=pathlib.Path, default=PROGRAM, metavar="PATH", help=text)
    text = f"hold the peers (default: {', '.join(CHECKED)}) against tests/data and stop"
    add("--check", action="store_true", help=text)
    add("--peer", choices=PEERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.variant = arguments.variant or ["sapiens2-0.4b"]
    if arguments.check or arguments.peer:
        return arguments
    wanted = {name.rsplit("-", 1)[1] for name in arguments.peers or PEERS}
    arguments.precision = arguments.precision or [one for one in PRECISIONS if one in wanted]
    if arguments.peers and not wanted.issubset(arguments.precision):
        parser.error("--precision leaves out that of a peer")
    arguments.peers = arguments.peers or PEERS
    if arguments.json and not arguments.json.absolute().parent.is_dir():
        parser.error(f"--json {arguments.json}: there is no folder for it")
    program = str(arguments.sapiens)
    try:
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        arguments.version = version.stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        parser.error(f"{error}: build it (cargo build --release --bin sapiens), or say --sapiens PATH")
    return arguments


def main():
    arguments = parse_arguments()
    # Before PyTorch is there to read them. Threads without work sleep, so that a waiting peer takes nothing
    # from ours, and its own threads nothing from one another where something else runs too.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    if arguments.check or arguments.peer:
        # Here, so that only a process that is a peer holds PyTorch.
        from check import check
        from peer import serve

        if arguments.check:
            return 1 if check(arguments.peers or CHECKED, arguments.threads) else 0
        card = read_card(variants()[arguments.variant[0]])
        return serve(arguments.peer, card, arguments.input[0], arguments.threads)
    # Asked to end, it ends as on Ctrl-C: with its processes, and with the table of what there was.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report = {"rounds": arguments.rounds, "threads": arguments.threads, "seed": SEED}
    report["load_average"] = os.getloadavg()[0]
    comparison, status = Comparison(arguments), 0
    try:
        comparison.run()
    except KeyboardInterrupt:
        say("interrupted: this is what there was")
        status = 130
    report["software"] = {"sapiens": arguments.version, "Python": platform.python_version()}
    report["software"] |= comparison.software
    report["results"] = comparison.rows
    print_report(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return status or int(any(row["who"] == "ours" and "not_run" in row for row in comparison.rows))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ImportError) as error:
        sys.exit(f"error: {error}")
