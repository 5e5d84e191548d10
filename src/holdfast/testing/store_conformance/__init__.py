"""The exam of a store: one function per promise of the store ports, for anybody's store.

    report = await run_store_conformance(place_for_each_check)
    print(report)

`place_for_each_check()` prepares an empty place and returns a function that opens a store on it;
opening it twice gives two handles on the same place, as two processes would have.
"""

from holdfast.testing.store_conformance.exam import CHECKS, run_store_conformance
from holdfast.testing.store_conformance.report import FailedCheck, Report

__all__ = ["CHECKS", "FailedCheck", "Report", "run_store_conformance"]
