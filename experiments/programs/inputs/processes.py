"""Processes in the ways that Python has for them."""

import multiprocessing
import subprocess


def square(number: int) -> int:
    return number * number


def child(connection, queue, lock) -> None:
    with lock:
        connection.send("hi")
        queue.put([1, 2])


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    one, other = multiprocessing.Pipe()
    queue, lock = multiprocessing.Queue(), multiprocessing.Lock()
    process = multiprocessing.Process(target=child, args=(other, queue, lock))
    process.start()
    print(one.recv(), queue.get())
    process.join()
    print(process.exitcode, multiprocessing.Value("i", 3).value)
    with multiprocessing.Pool(2) as pool:
        print(pool.map(square, range(10)))
    print(subprocess.run(["tr", "a-z", "A-Z"], input=b"shout", capture_output=True).stdout)
    print(subprocess.check_output("echo a; echo b | cat; exit 0", shell=True))
    print(subprocess.run(["sh", "-c", "kill -9 $$"]).returncode)
