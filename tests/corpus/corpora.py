"""The public captures: repositories at fixed commits."""

import os
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Corpus:
    name: str
    repository: str
    commit: str
    folder: str


CORPORA = (
    Corpus(
        "tcpdump",
        "https://github.com/the-tcpdump-group/tcpdump",
        "39b50f76672bca4af7d7eb52604c5b692c6b6b2c",
        "tests",
    ),
    Corpus(
        "zeek",
        "https://github.com/zeek/zeek",
        "a13de64fbbdb01f90961c04719b308fbbb6d199e",
        "testing/btest/Traces",
    ),
    Corpus(
        "suricata-verify",
        "https://github.com/OISF/suricata-verify",
        "10a45e4bad6d29d0f1239d93119ea24e1bbdab19",
        "tests",
    ),
    Corpus(
        "PcapPlusPlus",
        "https://github.com/seladb/PcapPlusPlus",
        "200853b3a0b5ea2c443d6bee1a67f9c9c67b8f1b",
        "Tests/Pcap++Test/PcapExamples",
    ),
)
# pcap with microseconds and nanoseconds in both byte orders, and pcapng.
MAGIC = {b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d"}
MAGIC.add(b"\x0a\x0d\x0d\x0a")


def fetch(corpus, folder):
    """Checks out the corpus's folder at its commit, unless it is there already."""
    path = os.path.join(folder, corpus.name)
    if os.path.isdir(os.path.join(path, corpus.folder)):
        return
    os.makedirs(path, exist_ok=True)

    def git(*arguments):
        subprocess.run(["git", "-C", path, *arguments], check=True)

    git("init", "--quiet")
    git("config", "remote.origin.url", corpus.repository)
    git("sparse-checkout", "set", "--no-cone", f"/{corpus.folder}/")
    # Without files, because those outside of the folder are not needed.
    git("fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", corpus.commit)
    git("-c", "advice.detachedHead=false", "checkout", "--quiet", "FETCH_HEAD")


def captures(corpus, folder):
    """The corpus's captures in order, by content rather than by name."""
    top = os.path.join(folder, corpus.name)
    found = []
    for place, _, names in os.walk(os.path.join(top, corpus.folder)):
        for name in names:
            path = os.path.join(place, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                if file.read(4) in MAGIC:
                    found.append(os.path.relpath(path, top))
    return sorted(found)
