"""Import one module in a bare interpreter: CPU time, modules loaded, and the heavy ones named.

Run as a script, with the standard library alone, so that nothing is loaded before the clock.
"""

import sys
import time

HEAVY = (
    "aiohttp",
    "httpx",
    "pydantic",
    "apsw",
    "sqlite3",
    "psycopg",
    "anthropic",
    "openai",
    "asyncio",
)


def main() -> None:
    """Import what the first argument names; print the numbers as JSON."""
    name = sys.argv[1]
    before = set(sys.modules)
    start = time.process_time()
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        print("null")
        return
    seconds = time.process_time() - start
    loaded = set(sys.modules) - before
    heavy = [module for module in HEAVY if module in loaded and module != name]
    # Late on purpose: json is among the modules that are counted.
    import json

    print(json.dumps({"seconds": seconds, "modules": len(loaded), "heavy": heavy}))


if __name__ == "__main__":
    main()
