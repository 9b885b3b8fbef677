"""The memory of the app's server after many page loads and many uploads.

Every load and upload has its own session, which ends before the next begins, and its own dialog or
file. This script speaks the browser's protocol, without a browser. It prints the server's resident
memory, its growth over the second half of the visits, and what remains once the sessions expired.

    python -m benchmarks.memory [--loads 400] [--uploads 40]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from pathlib import Path

import numpy as np
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Common_pb2 import FileURLs
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect

from benchmarks.live_app import APP, resident, serve

SECONDS = 300
SECONDS_KEPT = 15
"""How long the server keeps an ended session: see .streamlit/config.toml."""

COOKIE = "_streamlit_xsrf"
BOUNDARY = "end-of-part"
WORDS = [f"word{place}" for place in range(5000)]


def conversations(seed: int, count: int = 400, turns: int = 20, words: int = 60) -> bytes:
    """Return a file of random chats."""
    drawn = np.random.default_rng(seed).integers(len(WORDS), size=(count, turns, words))
    chats = [
        [
            {
                "role": ("user", "assistant")[turn % 2],
                "content": " ".join(WORDS[word] for word in row),
                "topic": "AB"[turn // 4 % 2],
            }
            for turn, row in enumerate(chat)
        ]
        for chat in drawn
    ]
    return json.dumps(chats).encode()


class Visitor:
    """The browser's side of the protocol."""

    def __init__(self, app: str, socket: ClientConnection) -> None:
        self._app, self._socket = app, socket
        self._page = self._session = self._uploader = ""
        self.drawn: set[str] = set()

    def open(self, query: str, name: str = "", brought: FileURLs | None = None) -> None:
        """Run a page to its end, with an uploaded file if there is one."""
        message = BackMsg()
        script = message.rerun_script
        script.query_string, script.page_name, script.page_script_hash = query, name, self._page
        if brought is not None:
            uploader = script.widget_states.widgets.add(id=self._uploader)
            file = uploader.file_uploader_state_value.uploaded_file_info.add()
            file.name, file.file_id = "chats.json", brought.file_id
            file.file_urls.CopyFrom(brought)
        self._socket.send(message.SerializeToString())
        self.drawn.clear()
        while not self._receive().HasField("script_finished"):
            pass

    def send(self, content: bytes) -> FileURLs:
        """Upload a file, and return its place on the server."""
        message = BackMsg()
        message.file_urls_request.file_names.append("chats.json")
        message.file_urls_request.session_id = self._session
        self._socket.send(message.SerializeToString())
        while not (reply := self._receive()).HasField("file_urls_response"):
            pass
        place: FileURLs = reply.file_urls_response.file_urls[0]
        with urllib.request.urlopen(f"{self._app}/_stcore/health") as answer:
            token = SimpleCookie(answer.headers["Set-Cookie"])[COOKIE].value
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="chats.json"'
        request = urllib.request.Request(
            f"{self._app}/{place.upload_url.removeprefix('/')}",
            b"%s\r\n\r\n%s\r\n--%s--\r\n" % (head.encode(), content, BOUNDARY.encode()),
            {
                "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
                "Cookie": f"{COOKIE}={token}",
                "X-Xsrftoken": token,
            },
            method="PUT",
        )
        urllib.request.urlopen(request).close()
        return place

    def _receive(self) -> ForwardMsg:
        reply: ForwardMsg = ForwardMsg.FromString(self._socket.recv(SECONDS, decode=False))
        if reply.HasField("new_session"):
            self._session = reply.new_session.initialize.session_id
        elif reply.HasField("navigation"):
            self._page = reply.navigation.page_script_hash
        elif reply.HasField("delta") and reply.delta.HasField("new_element"):
            element = reply.delta.new_element
            self.drawn.add(str(element.WhichOneof("type")))
            self._uploader = element.file_uploader.id or self._uploader
        return reply


@contextmanager
def session(app: str) -> Iterator[Visitor]:
    """Open a session of the app, and end it."""
    address = f"{app.replace('http', 'ws', 1)}/_stcore/stream"
    with connect(address, max_size=None, subprotocols=["streamlit"]) as socket:  # type: ignore[list-item]
        yield Visitor(app, socket)


def load(app: str, seed: int) -> None:
    """Open the step page on a new dialog."""
    with session(app) as visitor:
        visitor.open(f"scenario=mixed&seed={seed}")
        assert "vega_lite_chart" in visitor.drawn


def upload(app: str, seed: int) -> None:
    """Upload a file on the dialogs page, and open its first dialog."""
    with session(app) as visitor:
        visitor.open("file=own&view=cache", "dialogs")
        visitor.open("file=own&view=cache", "dialogs", visitor.send(conversations(seed)))
        assert "vega_lite_chart" in visitor.drawn


def watch(app: str, visit: Callable[[str, int], None], count: int, every: int) -> None:
    """Visit the app `count` times, each in a new session; print the memory."""
    held = []
    for number in range(1, count + 1):
        visit(app, number)
        held.append(resident(app))
        if number % every == 0 or number == 1:
            print(f"{visit.__name__} {number}: {held[-1]:.0f} MB", flush=True)
    late = held[count // 2 :]
    if len(late) > 1:
        slope = np.polyfit(range(len(late)), late, 1)[0]
        print(f"the second half grows by {slope:+.2f} MB a visit", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=400)
    parser.add_argument("--uploads", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serve(APP, Path(folder) / "app.txt") as app:
        watch(app, load, options.loads, 25)
        watch(app, upload, options.uploads, 4)
        time.sleep(SECONDS_KEPT + 5)
        load(app, 0)  # expired sessions go when the next one ends
        upload(app, 0)
        print(f"after the sessions expired: {resident(app):.0f} MB")


if __name__ == "__main__":
    main()
