"""A WSGI application that reads PATH_INFO as Bottle does: what is no UTF-8 is left out."""

import json
import os
import re

SECRET = os.environ["SECRET"]


def app(environ, start_response):
    path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "ignore")
    path = "/" + path.lstrip("/")
    if path == "/echo":
        body = environ["wsgi.input"].read().decode("latin-1")
        text = json.dumps([environ["REQUEST_METHOD"], environ["RAW_URI"], environ.get("HTTP_HOST"), body])
    else:
        text = SECRET if re.match(r"/(open/)?secret(/|$)", path) or path == "/open/page.html" else "open"
    start_response("200 OK", [("Content-Length", str(len(text))), ("X-Id", environ.get("HTTP_X_ID", ""))])
    return [text.encode()]
