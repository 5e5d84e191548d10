"""Checks for stores: one function per promise of the store ports, for stores of your own, too.

    report = await run_store_conformance(place_for_each_check)
    print(report)

`place_for_each_check()` prepares an empty place and returns a function that opens a store on it.
Opening it twice gives two handles on the same place, as two processes would have.
"""

from holdfast.testing.promises import FailedCheck, Report
from holdfast.testing.store_conformance.runner import CHECKS, run_store_conformance

__all__ = ["CHECKS", "FailedCheck", "Report", "run_store_conformance"]
