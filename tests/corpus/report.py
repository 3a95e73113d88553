"""The table of differences by kind."""

import csv
import hashlib
import os
from collections import Counter, defaultdict

from compare import MEASURES
from programs import COLUMNS
from reasons import KINDS

COMPARED = {
    "definitions": ["connections", *MEASURES],
    "tshark": ["connections", *MEASURES],
    "tcptrace": ["connections", *COLUMNS],
}
COLUMN_NAMES = ["measure", "program", "kind", "captures", "connections", "difference"]


class Report:
    def __init__(self, folder, kind):
        self.folder, self.kind = folder, kind
        self.contents = set()
        self.corpus = Counter()
        self.corpora = []
        self.unexplained = []
        # By measure, program and kind: captures, pairs of addresses and ports, sum of differences.
        self.rows = defaultdict(lambda: [set(), set(), 0])
        self.shown = []

    def new(self, corpus, names):
        """The corpus's captures, except those with a content that came before."""
        paths = []
        for name in names:
            path = os.path.join(self.folder, corpus.name, name)
            with open(path, "rb") as file:
                content = hashlib.sha256(file.read()).digest()
            if content not in self.contents:
                self.contents.add(content)
                paths.append(path)
        self.corpus = Counter(captures=len(names), different=len(paths))
        return paths

    def add(self, name, result):
        if isinstance(result, Exception):
            self.unexplained.append(f"{name}: {result}")
            return
        if result is None:
            return
        programs, connections, differences = result
        self.corpus["with TCP"] += 1
        self.corpus["connections"] += len(connections)
        unequal = set()
        for difference in differences:
            row = difference.measure, difference.program
            self.count(row, difference.kind, name, difference.connection, difference.difference)
            unequal.add((*row, difference.connection))
            if not difference.kind or difference.kind == self.kind:
                ends = " to ".join(f"{address} {port}" for address, port in difference.connection)
                packet = f", packet {difference.packet}" if difference.packet else ""
                line = (
                    f"{name}: {ends}{packet}: {difference.measure}: pillion minus "
                    f"{difference.program} is {difference.difference}"
                )
                (self.shown if difference.kind else self.unexplained).append(line)
        for program in programs:
            for measure in COMPARED[program]:
                for connection in connections:
                    if (measure, program, connection) not in unequal:
                        self.count((measure, program), "equal", name, connection, 0)

    def count(self, row, kind, name, connection, difference):
        captures, connections, _ = entry = self.rows[(*row, kind)]
        captures.add(name)
        connections.add((name, connection))
        entry[2] += difference

    def finish(self, corpus):
        self.corpora.append((corpus, self.corpus))

    def table(self):
        def order(key):
            measure, program, kind = key
            return program, COMPARED["tshark"].index(measure), kind != "equal", kind

        for key in sorted(self.rows, key=order):
            measure, program, kind = key
            captures, connections, difference = self.rows[key]
            counts = len(captures), len(connections), difference
            yield measure, program, kind or "UNEXPLAINED", *counts, *KINDS.get(kind, ("", ""))

    def summary(self):
        for corpus, counts in self.corpora:
            yield (
                f"{corpus.name} {corpus.commit[:12]}: {counts['captures']} captures, "
                f"{counts['different']} new, {counts['with TCP']} with TCP, "
                f"{counts['connections']} connections"
            )

    def print(self):
        for line in self.summary():
            print(line)
        print()
        for row in [COLUMN_NAMES, *self.table()]:
            print("{:22} {:12} {:27} {:>8} {:>11} {:>11}".format(*row))
        if self.shown:
            print("", *self.shown, sep="\n")
        if self.unexplained:
            print("\nunexplained:", *self.unexplained, sep="\n")

    def write(self, path):
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write("# tests/corpus/run --csv docs/evidence/trace-corpus.csv\n")
            for line in self.summary():
                file.write(f"# {line}\n")
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*COLUMN_NAMES, "why", "right"])
            writer.writerows(self.table())
