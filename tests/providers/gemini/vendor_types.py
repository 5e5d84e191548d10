"""The request types of Google's own client; its source draws warnings that are not ours."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from google.genai import types

__all__ = ["types"]
