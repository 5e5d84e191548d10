"""Settings and fixtures for all tests; the fixtures themselves are in fixtures_<topic>.py."""

import hypothesis

pytest_plugins = [
    "tests.fixtures_report",
    "tests.fixtures_wire",
    "tests.fixtures_local",
    "tests.fixtures_llama",
]

# No deadline: no test judges by the clock.
hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("soak", deadline=None, print_blob=True, max_examples=10_000)
hypothesis.settings.load_profile("default")
