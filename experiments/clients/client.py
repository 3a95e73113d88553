"""Clients and servers that echo numbered messages, each with its usual library or program.

Run by `compare`. A client sends a message at each due time, and writes the number of each answer
and its latency since the due time, in nanoseconds, to a file. Redis waits for each answer before
its next request.
"""

import argparse
import os
import pty
import socket
import struct
import subprocess
import sys
import threading
import time

SIZE = 100
# Wait for the last answers.
SECONDS_TO_END = 20


class Meter:
    """Due times of messages, and the latencies of their answers."""

    def __init__(self, arguments):
        self.messages, self.itt_ns = arguments.messages, arguments.itt * 1_000_000
        self.records = open(arguments.records, "w")
        self.answered = 0
        self.finished = threading.Event()

    def due(self):
        """Yields the number of each message when it is due."""
        print("ready", flush=True)
        sys.stdin.readline()
        self.start_ns = time.monotonic_ns()
        for number in range(self.messages):
            left_ns = self.start_ns + number * self.itt_ns - time.monotonic_ns()
            time.sleep(max(left_ns, 0) / 1e9)
            yield number

    def payloads(self):
        """Yields each message when it is due: its number, and random bytes."""
        for number in self.due():
            yield struct.pack(">I", number) + os.urandom(SIZE - 4)

    def add_payload(self, payload):
        self.add(struct.unpack_from(">I", payload)[0])

    def add(self, number, since_ns=None):
        sent_ns = since_ns or self.start_ns + number * self.itt_ns
        self.records.write(f"{number},{time.monotonic_ns() - sent_ns}\n")
        self.answered += 1
        if self.answered == self.messages:
            self.finished.set()

    def wait(self):
        self.finished.wait(SECONDS_TO_END)
        self.records.close()
        print("done", flush=True)


def redis(arguments, meter):
    connection = socket.create_connection((arguments.host, arguments.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answers = connection.makefile("rb")
    value = b"v" * SIZE
    connection.sendall(b"SET key %s\r\n" % value)
    answers.readline()
    for number in meter.due():
        sent_ns = time.monotonic_ns()
        connection.sendall(b"GET key\r\n")
        length = int(answers.readline()[1:])
        answers.read(length + 2)
        meter.add(number, sent_ns)


def mqtt(arguments, meter):
    import paho.mqtt.client as paho

    subscribed = threading.Event()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = lambda _client, _data, message: meter.add_payload(message.payload)
    client.connect(arguments.host, arguments.port)
    client.loop_start()
    client.subscribe("pillion")
    subscribed.wait(SECONDS_TO_END)
    for payload in meter.payloads():
        client.publish("pillion", payload)
    meter.finished.wait(SECONDS_TO_END)
    client.loop_stop()


def ssh(arguments, meter):
    """Types keys into a pseudo terminal whose other end echoes them."""
    keyboard, terminal = pty.openpty()
    options = "-tt -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    command = ["ssh", *options.split(), "-i", arguments.key, "-p", str(arguments.port)]
    command += [arguments.host, "stty -icanon; printf '#'; exec cat >/dev/null"]
    client = subprocess.Popen(command, stdin=terminal, stdout=terminal)
    os.close(terminal)
    while b"#" not in os.read(keyboard, 1000):
        pass

    def read():
        count = 0
        while count < meter.messages:
            for _ in os.read(keyboard, 1000):
                meter.add(count)
                count += 1

    threading.Thread(target=read, daemon=True).start()
    for _ in meter.due():
        os.write(keyboard, b"x")
    meter.finished.wait(SECONDS_TO_END)
    client.kill()
    client.wait()


def websocket(arguments, meter):
    from websockets.sync.client import connect

    connection = connect(f"ws://{arguments.host}:{arguments.port}")

    def read():
        for payload in connection:
            meter.add_payload(payload)

    threading.Thread(target=read, daemon=True).start()
    for payload in meter.payloads():
        connection.send(payload)


def websocket_server(arguments):
    from websockets.sync.server import serve

    def echo(connection):
        for payload in connection:
            connection.send(payload)

    serve(echo, arguments.host, arguments.port).serve_forever()


def grpc(arguments, meter):
    import grpc

    channel = grpc.insecure_channel(f"{arguments.host}:{arguments.port}")
    grpc.channel_ready_future(channel).result(SECONDS_TO_END)
    for payload in channel.stream_stream("/echo.Echo/Echo")(meter.payloads()):
        meter.add_payload(payload)


def grpc_server(arguments):
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    echo = grpc.stream_stream_rpc_method_handler(lambda payloads, _context: payloads)
    server = grpc.server(ThreadPoolExecutor(4))
    handler = grpc.method_handlers_generic_handler("echo.Echo", {"Echo": echo})
    server.add_generic_rpc_handlers([handler])
    server.add_insecure_port(f"{arguments.host}:{arguments.port}")
    server.start()
    server.wait_for_termination()


CLIENTS = {"redis": redis, "mqtt": mqtt, "ssh": ssh, "websocket": websocket, "grpc": grpc}
SERVERS = {"websocket": websocket_server, "grpc": grpc_server}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["client", "server"])
    parser.add_argument("kind", choices=CLIENTS)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key", help="private key of ssh")
    parser.add_argument("--messages", type=int)
    parser.add_argument("--itt", type=int, help="ms between messages")
    parser.add_argument("--records", help="file of latencies")
    arguments = parser.parse_args()
    if arguments.role == "server":
        SERVERS[arguments.kind](arguments)
        return
    meter = Meter(arguments)
    CLIENTS[arguments.kind](arguments, meter)
    meter.wait()
    os._exit(0)


main()
