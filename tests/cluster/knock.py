"""Garbage, replayed and huge messages, slow readers and thousands of connections at a port of the monitor.

Usage: knock.py HOST PORT. Ends with 0 when every one of them was sent away, with 3 if another program listens there.
"""
import socket
import struct
import sys
import time

ADDRESS = (sys.argv[1], int(sys.argv[2]))


def connect():
    peer = socket.create_connection(ADDRESS, timeout=10)
    peer.settimeout(10)
    return peer


def is_closed(peer):
    """All that still comes is the challenge; then the other side closes."""
    total = 0
    try:
        while True:
            data = peer.recv(4096)
            if not data:
                return total <= 48
            total += len(data)
    except ConnectionError:
        return True
    except socket.timeout:
        return False
    finally:
        peer.close()


def send(data):
    peer = connect()
    try:
        peer.sendall(data)
    except ConnectionError:
        pass
    if not is_closed(peer):
        sys.exit("not sent away: %r" % data[:32])


def head(kind, size):
    return struct.pack("<IBBHIIQ", 0x4D504444, 1, kind, 0, size, 0, 0)


def is_monitor():
    peer = connect()
    peer.settimeout(3)
    try:
        return peer.recv(4) == b"DDPM"
    except OSError:
        return False
    finally:
        peer.close()


if not is_monitor():
    sys.exit(3)
send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
send(b"\0" * 100000)
for kind in range(256):
    if kind % 17 == 0 or kind < 10:
        send(head(kind, 24) + b"\0" * 32)
send(head(4, 0xFFFFFFFF) + b"\0" * 1000000)
send(head(2, 24) + struct.pack("<II", 0, 0) + b"\0" * 24)

# what one connection heard, said on another
peer = connect()
challenge = peer.recv(48)
peer.close()
send(challenge)
send(head(2, 24) + struct.pack("<II", 1, 1) + challenge[24:40] + b"\0" * 8)

# those who say nothing, or a byte now and then, are sent away in time
silent = [connect() for _ in range(8)]
slow = connect()
started = time.time()
for byte in head(2, 24):
    try:
        slow.sendall(bytes([byte]))
    except ConnectionError:
        break
    time.sleep(0.3)
if not all(is_closed(peer) for peer in silent + [slow]) or time.time() - started > 30:
    sys.exit("silent connections stay")

# many, a hundred at a time, then all at once as far as they go
for _ in range(100):
    for peer in [socket.socket() for _ in range(100)]:
        peer.setblocking(False)
        peer.connect_ex(ADDRESS)
        peer.close()
many = []
for _ in range(500):
    peer = socket.socket()
    peer.setblocking(False)
    peer.connect_ex(ADDRESS)
    many.append(peer)
time.sleep(1)
