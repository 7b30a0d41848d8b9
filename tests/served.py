"""What tests and benchmarks do to a server of `labkit serve`."""

import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import torch

from labkit.models.trained import trained
from labkit.text.writing import to_text, to_tokens


def ask(url, body, *, method="POST", path="/v1/completions", **headers):
    """(status, the answer as an object)."""
    place = urlsplit(url)
    client = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    body = body if isinstance(body, (str, bytes)) else json.dumps(body)
    try:
        client.request(method, path, body, {"Content-Type": "application/json"} | headers)
        answer = client.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")
    finally:
        client.close()


def metrics(url):
    place = urlsplit(url)
    client = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    client.request("GET", "/metrics")
    lines = client.getresponse().read().decode().splitlines()
    client.close()
    return {
        name.removeprefix("labkit_"): int(value) for name, value in (line.split() for line in lines)
    }


def wanted(prompt, count):
    """What the decoder writes, read anew from the first token on each time."""
    decoder, text = trained("decoder-small")[0], to_tokens(prompt)
    with torch.inference_mode():
        for _ in range(count):
            text = torch.cat([text, decoder(text)[:, :, -1].argmax(1, keepdim=True)], 1)
    return to_text(text[0, -count:])


def is_well(url):
    """Whether it answers and answers right; "busy" (429) is asked again, as a client should."""
    deadline = time.monotonic() + 60
    status, answer = 429, {}
    while status == 429 and time.monotonic() < deadline:
        status, answer = ask(url, {"prompt": "The", "max_tokens": 8, "temperature": 0})
        time.sleep(0.1 if status == 429 else 0)
    return status == 200 and answer["choices"][0]["text"] == wanted("The", 8)


def raw(url, data, *, wait=0.0):
    """Send bytes, wait, and go away without reading."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=10) as client:
        try:
            client.sendall(data)
            time.sleep(wait)
        except OSError:
            pass  # it has hung up on us: that is an answer


def message(url, body, length=None):
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: "
        "application/json\r\n"
    )
    return (
        f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode()
        + body.encode()
    )


def send_malformed(url, count):
    """Send requests with changed bytes, some cut short; every 250 of them, look whether the
    server is well.
    """
    chance = random.Random(0)
    good = message(url, json.dumps({"prompt": "The", "max_tokens": 4}))
    for n in range(count):
        data = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if n % 3 == 0:
            data = data[: chance.randrange(len(data))]
        raw(url, bytes(data))
        if n % 250 == 0:
            assert is_well(url)


def seconds_to_end(busy):
    """Begin a server, give it work where `busy`, press Ctrl-C: (seconds until the process has
    ended, its exit code).
    """
    command = [
        sys.executable,
        "-m",
        "labkit.cli",
        "serve",
        "--model",
        "decoder-small",
        "--port",
        "0",
        "--threads",
        "1",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().split(" on ")[1].split(";")[0]
            with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as client:
                if busy:
                    client.sendall(
                        message(
                            url, json.dumps({"prompt": "The", "max_tokens": 250, "stream": True})
                        )
                    )
                    client.recv(100)
                begin = time.monotonic()
                process.send_signal(signal.SIGINT)
                process.wait(60)
                return time.monotonic() - begin, process.returncode
        finally:
            process.kill()
