"""Sizes of samples: a small one for `make test`, a larger one for `make sweep`."""

import pytest


def sampled(small: int, large: int) -> pytest.MarkDecorator:
    """Run a test with a `sample` of each size, the larger one in a sweep only."""
    sizes = [small, pytest.param(large, marks=pytest.mark.sweep)]
    return pytest.mark.parametrize("sample", sizes)
