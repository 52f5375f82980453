"""Calls a platform as any Python program does: caller.py URL CALLERS prints "{STATUS: COUNT}" and the events."""
import collections
import sys
import threading
import urllib.request

url, callers = sys.argv[1], int(sys.argv[2])
statuses, lock = collections.Counter(), threading.Lock()


def call():
    with urllib.request.urlopen(url + "/topapi/v2/user/get?access_token=app-key") as response:
        response.read()
        with lock:
            statuses[response.status] += 1


call()  # opens the connections
threads = [threading.Thread(target=call) for _ in range(callers - 1)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print("HTTP_1_1", dict(statuses))

with urllib.request.urlopen(url + "/events") as stream:
    print(stream.readline().decode().strip())
    stream.readline()
    urllib.request.urlopen(url + "/next").read()
    print(stream.readline().decode().strip())
