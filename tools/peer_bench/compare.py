"""The comparison: ours and one peer in turn, so that a ratio is of medians taken from the same minutes."""

import contextlib
import statistics
import sys

from cards import read_card, variants
from sides import CannotRun, Peer, proc_mib, run_ours

NAMES = ("model", "input", "who", "precision")
# A column's title, the key and the format of its figure, and what it is.
FIGURES = (
    ("load s", "load_s", ".2f", "until ready, weights made up; without the start and the imports"),
    ("first frame s", "first_frame_s", ".2f", "with a compiler's work; of ours with all around the network"),
    ("network ms", "network_ms", ".1f", "from the network's input to its logits; median of the rounds"),
    ("ours beside ms", "ours_ms", ".1f", "network ms of ours, in the rounds beside this peer"),
    ("times ours", "times_ours", ".2f", "network ms / ours beside ms: above 1 the peer is slower"),
    ("peak MiB", "peak_memory_mib", ".0f", "the most memory that the process had"),
)


def say(*words):
    print(*words, file=sys.stderr, flush=True)


class Comparison:
    """All rounds, and the rows that come of them. Interrupted, it has what there was so far."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.rows = []
        self.software = {}

    def run(self):
        for variant in self.arguments.variant:
            card = read_card(variants()[variant])
            for size in self.arguments.input or [(card["input"]["width"], card["input"]["height"])]:
                for precision in self.arguments.precision:
                    self.compare({"model": variant, "input": size, "precision": precision})

    def compare(self, common):
        """Ours and each of its peers. The row of ours is of all rounds there were."""
        ours = {**common, "who": "ours", "rounds": []}
        self.rows.append(ours)
        for name in self.arguments.peers:
            if name.endswith("-" + common["precision"]):
                self.alternate(ours, {**common, "who": name})
        # Where no peer got as far as a round, ours is measured all the same.
        while len(ours["rounds"]) < self.arguments.rounds and "not_run" not in ours:
            self.run_ours(ours)

    def run_ours(self, row):
        """Adds a round and its milliseconds; none from the first on that fails."""
        if "not_run" in row:
            return []
        try:
            row["rounds"].append(run_ours(self.arguments, row))
        except CannotRun as error:
            row["not_run"] = str(error)
            return []
        row |= row["rounds"][-1]
        newest = [row["network_ms"]]
        for key in ("network_ms", "load_s", "first_frame_s"):
            row[key] = statistics.median(one[key] for one in row["rounds"])
        return newest

    def alternate(self, ours, row):
        self.rows.append(row)
        label = "{} {}x{} {}".format(row["model"], *row["input"], row["who"])
        say(f"{label}: loading")
        try:
            with contextlib.closing(Peer(self.arguments, row)) as peer:
                row |= peer.answer() | {"rounds_ms": [], "ours_rounds_ms": []}
                self.software |= row.pop("software")
                for number in range(self.arguments.rounds):
                    beside, of_peer = self.run_ours(ours), peer.frame_ms()
                    times = ", ".join([*(f"ours {one:.1f} ms" for one in beside), f"peer {of_peer:.1f} ms"])
                    say(f"{label}: round {number + 1}: {times}")
                    row["ours_rounds_ms"] += beside
                    row["rounds_ms"].append(of_peer)
                    row["network_ms"] = statistics.median(row["rounds_ms"])
                    if row["ours_rounds_ms"]:
                        row["ours_ms"] = statistics.median(row["ours_rounds_ms"])
                        row["times_ours"] = row["network_ms"] / row["ours_ms"]
                row["peak_memory_mib"] = proc_mib(f"/proc/{peer.process.pid}/status", "VmHWM")
        except CannotRun as error:
            row["not_run"] = str(error)
            say(f"{label}: not run: {error}")


def print_report(report):
    """What was compared, the table, and what its columns are."""
    rows, software = report["results"], report["software"]
    backends = {f"{row['backend']} on {row['processor']}": None for row in rows if "backend" in row}
    print("ours    ", ", ".join([software["sapiens"], *backends]))
    print("peers   ", ", ".join(f"{name} {software[name]}" for name in software if name != "sapiens"))
    print("rounds   {rounds} in turn, {threads} threads, load {load_average:.1f} before\n".format(**report))
    lines = [[*NAMES, *(title for title, *_ in FIGURES)]]
    for row in rows:
        line = [row["model"], "{}x{}".format(*row["input"]), row["who"], row["precision"]]
        if "not_run" in row:
            line.append(f"not run: {row['not_run']}")
        else:
            line += [format(row[key], form) if row.get(key) else "-" for _, key, form, _ in FIGURES]
        lines.append(line)
    # A reason goes over all the figures' columns and sets the width of none.
    full = [line for line in lines if len(line) == len(lines[0])]
    names = [max(len(line[i]) for line in lines) for i in range(len(NAMES))]
    figures = [max(len(line[i]) for line in full) for i in range(len(NAMES), len(lines[0]))]
    form = [f"{{:<{width}}}" for width in names] + [f"{{:>{width}}}" for width in figures]
    for line in lines:
        print("  ".join(form[: len(line)]).format(*line))
    print()
    for title, _, _, meaning in FIGURES:
        print(f"{title:<14}  {meaning}")
    print("Ratios from few rounds, or beside other work, say little.")
