"""Foreign programs on pillion's own path: two network namespaces, a path, and processes in them.

Every process ends with this one, however it ends, and the namespaces with their processes.
"""

import argparse
import atexit
import csv
import datetime
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SENDER, RECEIVER = "10.78.0.1", "10.78.0.2"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PERCENTILES = [50, 90, 97, 99, 99.9]
# Priority of the measured processes: other work of the machine delays them less.
NICE = "-15"
SECONDS_TO_START = 30

_processes = []
_hosts = []


def fail(line):
    """Prints one line and exits with status 2."""
    program = os.path.relpath(sys.argv[0], ROOT)
    print(f"{program}: {line}", file=sys.stderr)
    sys.exit(2)


def at_least(minimum):
    """Returns the type of an option that is an integer from a minimum."""

    def integer(text):
        if not text.isdigit() or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"`{text}`: expected an integer from {minimum}")
        return int(text)

    return integer


def start(arguments, priority=NICE, **options):
    """Starts a process that is killed when this one ends. Its standard error has a log."""
    log = open(os.path.join(folder, "log"), "ab")
    wrapped = ["nice", "-n", priority, "setpriv", "--pdeathsig", "KILL", *arguments]
    options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **options}
    process = subprocess.Popen(wrapped, start_new_session=True, **options)
    log.close()
    _processes.append(process)
    return process


def stop(process, number=signal.SIGTERM):
    """Ends a process, and returns its exit status."""
    if process.poll() is None:
        process.send_signal(number)
    try:
        return process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def wait_until(condition, purpose):
    """Waits at most 30 s for a condition, and returns its first true value."""
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    sys.exit(f"{purpose}: not ready after {SECONDS_TO_START} s\n{read_log()}")


def read_log():
    """Returns the last lines that processes wrote to standard error."""
    with open(os.path.join(folder, "log"), errors="replace") as log:
        return "".join(log.readlines()[-20:])


class Host:
    """A network namespace, which lasts as long as its first process."""

    def __init__(self, address):
        self.address = address
        self.namespace = None
        self.holder = start(["unshare", "--net", "sleep", "infinity"])
        _hosts.append(self)
        own = os.readlink("/proc/self/ns/net")
        self.namespace = wait_until(lambda: self._link(own), "network namespace")

    def _link(self, own):
        link = os.readlink(f"/proc/{self.holder.pid}/ns/net")
        return link if link != own else None

    def wrap(self, arguments):
        """Returns a command that runs inside. /sys remains that of this host."""
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *arguments]

    def start(self, arguments, **options):
        return start(self.wrap(arguments), **options)

    def run(self, command):
        subprocess.run(self.wrap(shlex.split(command)), check=True, stdout=subprocess.DEVNULL)

    def processes(self):
        """Returns the PIDs of all processes inside, except the first one."""
        pids = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                inside = os.readlink(f"/proc/{pid}/ns/net") == self.namespace
            except OSError:
                continue
            if inside and int(pid) != self.holder.pid:
                pids.append(int(pid))
        return pids

    def set_up(self, peer, hardware, peer_hardware, congestion):
        self.run("sysctl -q -w net.ipv6.conf.path.disable_ipv6=1")
        self.run("ip link set lo up")
        self.run(f"ip link set path address {hardware} up")
        self.run(f"ip address add {self.address}/24 dev path")
        self.run(f"ip neighbour add {peer} lladdr {peer_hardware} dev path nud permanent")
        route = f"10.78.0.0/24 dev path proto kernel scope link src {self.address}"
        self.run(f"ip route change {route} congctl {congestion}")

    def close(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        stop(self.holder, signal.SIGKILL)


class LivePath:
    """A sender and a receiver, joined by `pillion-lab path`."""

    def __init__(self, arguments, loss_back="0%", congestion="cubic"):
        self.sender, self.receiver = Host(SENDER), Host(RECEIVER)
        options = ["--rtt", arguments.rtt, "--loss", arguments.loss, "--loss-back", loss_back]
        ends = [str(host.holder.pid) for host in [self.sender, self.receiver]]
        command = [arguments.pillion_lab, "path", *ends, *options, "--seed", str(arguments.seed)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = start(command, **pipes)
        for host in [self.sender, self.receiver]:
            show = host.wrap(["ip", "link", "show", "path"])
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            wait_until(
                lambda: self.process.poll() is not None or not subprocess.call(show, **quiet),
                "pillion-lab path",
            )
        if self.process.poll() is not None:
            fail(self.process.stderr.readline().strip())
        hardware = "02:00:00:00:00:01", "02:00:00:00:00:02"
        self.sender.set_up(RECEIVER, *hardware, congestion)
        self.receiver.set_up(SENDER, *hardware[::-1], congestion)

    def bytes_sent(self):
        """Returns the bytes of Ethernet frames that the sender and the receiver sent."""
        sent = []
        for host in [self.sender, self.receiver]:
            show = host.wrap(["ip", "-json", "-statistics", "link", "show", "path"])
            report = json.loads(subprocess.check_output(show))
            sent.append(report[0]["stats64"]["tx"]["bytes"])
        return sent

    def stop(self):
        """Stops the path, ends all processes on it, and returns the counts of packets."""
        self.process.send_signal(signal.SIGINT)
        counts = json.loads(self.process.communicate(timeout=10)[0])
        self.sender.close()
        self.receiver.close()
        return counts


def percentile(values, share):
    """Returns a percentile of sorted values: the smallest that `share` % do not exceed."""
    rank = -(-len(values) * share // 100)
    return values[max(int(rank), 1) - 1]


def percentiles(values_ms):
    """Returns the percentiles of latencies by their column's name."""
    values = sorted(values_ms)
    return {f"p{share}": f"{percentile(values, share):.1f}" for share in PERCENTILES}


def add_arguments(parser, rtt, loss):
    """Adds the options that all comparisons share."""
    parser.add_argument("--rtt", default=rtt, help="round-trip time [default: %(default)s]")
    parser.add_argument("--loss", default=loss, help="share of packets lost [default: %(default)s]")
    parser.add_argument("--seed", type=at_least(0), default=1, help="seed of the losses")
    parser.add_argument("--csv", help="also write the table to this file")
    for program in ["pillion", "pillion-lab"]:
        parser.add_argument(f"--{program}", default=program, help=f"path of {program}")


def parse(parser):
    """Parses the command line, and checks what every comparison needs."""
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        fail("run as root: it creates network namespaces")
    for option in ["pillion", "pillion_lab"]:
        program = getattr(arguments, option)
        found = shutil.which(program)
        if not found:
            fail(f"{program} not found: give its path with --{option.replace('_', '-')}")
        setattr(arguments, option, found)
    return arguments


def print_table(rows, arguments):
    """Prints rows, dictionaries of text, with the run's circumstances; also as CSV."""
    if not rows:
        sys.exit("no results")
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    now = datetime.datetime.now(datetime.timezone.utc)
    circumstances = {
        "date": f"{now:%Y-%m-%d %H:%M} UTC",
        "command": shlex.join([os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]]),
        "kernel": platform.release(),
        "processors": str(os.cpu_count()),
        "load average at the end": load,
    }
    for name, value in circumstances.items():
        print(f"{name}: {value}")
    names = list(rows[0])
    widths = [max(len(row[name]) for row in [dict(zip(names, names)), *rows]) for name in names]
    for row in [dict(zip(names, names)), *rows]:
        is_number = [re.match(r"[-0-9.]+$", row[name]) or row[name] == name for name in names]
        cells = zip(names, widths, is_number)
        line = "  ".join(
            row[name].rjust(width) if right and name != names[0] else row[name].ljust(width)
            for name, width, right in cells
        )
        print(line.rstrip())
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            for name, value in circumstances.items():
                file.write(f"# {name}: {value}\n")
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def _clean_up():
    for host in _hosts:
        host.close()
    for process in reversed(_processes):
        if process.poll() is None:
            process.kill()
            process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _exit(number, _frame):
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


folder = tempfile.mkdtemp(prefix="pillion-")
atexit.register(_clean_up)
for _number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
    signal.signal(_number, _exit)
