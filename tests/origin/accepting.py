"""Servers of the tests' own: a thread takes connections, each is served by one."""

import socket
import threading


def serve_each(listener: socket.socket, serve, taken=None) -> None:
    """Until the listener is closed; serve(sock) closes it. taken(sock) is called in the order in which they come."""

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            if taken:
                taken(sock)
            threading.Thread(target=serve, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
