"""What an origin says of the request that it got, in a form that nobody on the way reads: stile blanks the credential
that it added wherever an answer shows it, so a test could not see it in an echo. Each byte's bits are turned round."""

import json

MOST = 65536  # a larger echo is left as it is


def seal(value: dict) -> dict:
    """The same with a member `sealed`."""
    data = json.dumps(value).encode()
    return {**value, "sealed": bytes(b ^ 0xff for b in data).hex()} if len(data) <= MOST else value


def unseal(value: object) -> object:
    """What was sealed, if anything was."""
    if not isinstance(value, dict) or "sealed" not in value:
        return value
    return json.loads(bytes(b ^ 0xff for b in bytes.fromhex(value["sealed"])))
