"""A server that issues tokens like an identity provider (OAuth 2.0, client credentials), signed with its own key."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

ISSUER, AUDIENCE = "https://tokens.test", "kafka"
CLIENT, SECRET = "winnow", "t0ken-8d1e07"  # the client's credentials


class TokenServer:
    """
    Issues tokens to clients with CLIENT and SECRET. A context manager.

    Args:
        keys: the file for its public key (JWKS), with which brokers verify tokens.
    """

    def __init__(self, keys: Path) -> None:
        """Make the key and bind a port."""
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": _number(numbers.n), "e": _number(numbers.e)}
        keys.write_text(json.dumps({"keys": [key]}))
        self.lives = 3600
        """For how many seconds the next tokens are valid."""
        self.given = 0
        """How many tokens were issued."""
        owner = self

        class TokenHandler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                owner.answer(self)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), TokenHandler)
        self._mute = socket.create_server(("127.0.0.1", 0))
        self.silence = f"http://127.0.0.1:{self._mute.getsockname()[1]}/token"
        """A port that accepts connections and never responds."""
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def __enter__(self) -> Self:
        """Start."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._mute.close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Issue a token, or refuse."""
        request.rfile.read(int(request.headers.get("Content-Length", 0)))
        known = f"Basic {base64.b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}"
        allowed = request.headers.get("Authorization") == known
        body: dict[str, Any] = {"error": "invalid_client", "error_description": "unknown client or wrong secret"}
        if allowed:
            self.given += 1
            body = {"access_token": self._token(), "token_type": "Bearer", "expires_in": self.lives}
        payload = json.dumps(body).encode()
        try:
            request.send_response(200 if allowed else 401)
            request.send_header("Content-Type", "application/json")
            request.send_header("Content-Length", str(len(payload)))
            request.end_headers()
            request.wfile.write(payload)
        except OSError:
            return  # the client has disconnected

    def _token(self) -> str:
        now = int(time.time())
        claims = {"sub": CLIENT, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + self.lives}
        signed = ".".join(_text(json.dumps(each).encode()) for each in ({"alg": "RS256", "kid": "1"}, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_text(signature)}"


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8, "big"))
