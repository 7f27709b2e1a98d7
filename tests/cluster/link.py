"""What a link between two hosts does: link.py serve | trip HOST | push HOST BYTES (milliseconds; Mbit/s)."""

import socket
import sys
import time

PORT = 5001


def serve():
    with socket.create_server(("", PORT)) as server:
        while True:
            peer = server.accept()[0]
            with peer:
                while data := peer.recv(1 << 16):
                    if data.endswith(b"?"):
                        peer.sendall(b"!")


def trip(host):
    """The shortest of ten round trips, in ms."""
    times = []
    with socket.create_connection((host, PORT), timeout=5) as peer:
        for _ in range(10):
            began = time.monotonic()
            peer.sendall(b"?")
            peer.recv(1)
            times.append(time.monotonic() - began)
    return min(times) * 1e3


def push(host, size):
    """Mbit/s of `size` bytes, until the last has come."""
    with socket.create_connection((host, PORT), timeout=60) as peer:
        began = time.monotonic()
        peer.sendall(bytes(size - 1) + b"?")
        peer.recv(1)
        return size * 8 / (time.monotonic() - began) / 1e6


def main(words):
    if words[0] == "serve":
        serve()
    elif words[0] == "trip":
        print(trip(words[1]))
    else:
        print(push(words[1], int(words[2])))


main(sys.argv[1:])
