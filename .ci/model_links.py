"""Print the HTTP status of every address of the named models; exit code 1 if one is dead."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

from bilm import published_models


def status(address: str) -> str:
    """The status of the first byte: some servers refuse HEAD."""
    request = urllib.request.Request(address, headers={"Range": "bytes=0-0"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError as error:
        return f"failed: {error}"


def main() -> int:
    n_dead = 0
    for model in published_models():
        for address in {**(model.files or {}), **(model.softmax or {})}.values():
            address = address.partition("#")[0]  # without the checksum
            result = status(address)
            n_dead += result not in ("200", "206")
            print(f"{result}  {model.name}  {address}", flush=True)
    return int(n_dead > 0)


if __name__ == "__main__":
    sys.exit(main())
