"""Parts of the standard library that ask the system for something; prints what is the same on every machine."""

import collections
import hashlib
import json
import mmap
import os
import re
import select
import signal
import socket
import tempfile
import threading
import time
import zlib

print(json.dumps({"a": [1, 2.5, None], "b": "\u00e9"}, sort_keys=True))
with open("words.txt") as words:
    text = words.read()
print(collections.Counter(re.findall(r"\b(\w+?)\d", text)).most_common(3))
print(
    hashlib.sha256(text.encode()).hexdigest(),
    hashlib.md5(b"x").hexdigest(),
    zlib.crc32(zlib.compress(b"abc")),
)

found: list[int] = []
lock = threading.Lock()


def work(number: int) -> None:
    for _ in range(3):
        with lock:
            found.append(number)


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(found))

one, other = socket.socketpair()
one.sendall(b"ping")
print(other.recv(10))
one.shutdown(socket.SHUT_WR)
print(other.recv(10))

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "x")
    with open(path, "w") as file:
        file.write("abc" * 100)
    os.symlink("x", os.path.join(folder, "link"))
    print(os.readlink(os.path.join(folder, "link")), os.path.getsize(path), sorted(os.listdir(folder)))
    os.chmod(path, 0o600)
    os.utime(path, (1e9, 1e9))
    os.link(path, path + "2")
    print(oct(os.stat(path).st_mode), os.stat(path).st_mtime, os.stat(path).st_nlink)
    os.rename(path + "2", path + "3")
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        pages[0:3] = b"XYZ"
    with open(path) as file:
        print(file.read(6))
with tempfile.TemporaryFile() as file:
    file.write(b"12")
    file.seek(0)
    print(file.read())

reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, b"child")
    os._exit(3)
print(os.read(reading, 10), os.waitstatus_to_exitcode(os.wait()[1]))
signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
signal.setitimer(signal.ITIMER_REAL, 0.05)
time.sleep(0.2)
poll = select.epoll()
poll.register(reading, select.EPOLLIN)
os.write(writing, b"x")
print(poll.poll(1) == [(reading, select.EPOLLIN)], os.umask(0o77) == 0o22)
