"""Servers and clients on the loopback, sockets with names, files sent through sockets, and locks on files."""

import asyncio
import fcntl
import mmap
import os
import socket
import sqlite3


async def answer(reader, writer) -> None:
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()


async def talk() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for number in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello %d\n" % number)
        print(await reader.read())
        writer.close()
    child = await asyncio.create_subprocess_exec(
        "wc", "-c", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    print(await child.communicate(b"12345"))
    server.close()


asyncio.run(talk())
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.send(b"one")
one.send(b"two")
print(other.recv(2), other.recv(10))
reading, writing = os.pipe()
one, other = socket.socketpair()
socket.send_fds(one, [b"x"], [writing])
data, files, _, _ = socket.recv_fds(other, 10, 4)
os.write(files[0], b"passed")
print(os.read(reading, 9), data)
server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
server.bind("socket")
server.listen()
client.connect("socket")
accepted, _ = server.accept()
client.sendall(b"by name")
print(accepted.recv(9), server.getsockname())
os.unlink("socket")
server, client = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
server.bind(("127.0.0.1", 0))
client.sendto(b"datagram", server.getsockname())
print(server.recvfrom(100)[0])
try:
    socket.create_connection(("127.0.0.1", 9))
except OSError as error:
    print(error)

database = sqlite3.connect("shared.db")
database.execute("pragma journal_mode=wal")
database.execute("create table t(a)")
database.executemany("insert into t values(?)", [(number,) for number in range(100)])
database.commit()
if os.fork() == 0:
    print(sqlite3.connect("shared.db").execute("select sum(a) from t").fetchone(), flush=True)
    os._exit(0)
os.wait()
database.close()
os.unlink("shared.db")

with open("pages", "w+b") as file:
    file.truncate(10000)
    pages = mmap.mmap(file.fileno(), 10000)
    if os.fork() == 0:
        pages[5000:5005] = b"child"
        os._exit(0)
    os.wait()
    file.seek(5000)
    print(pages[5000:5005], file.read(5))
with open("lock", "w") as first, open("lock", "w") as second:
    fcntl.flock(first, fcntl.LOCK_EX)
    try:
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        print(error)
