"""What came out of an exam."""

import msgspec


class FailedCheck(msgspec.Struct, frozen=True):
    """A promise that a store did not keep."""

    name: str
    reason: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the checks by how they ended."""

    passed: tuple[str, ...] = ()
    failed: tuple[FailedCheck, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def is_passed(self) -> bool:
        """Whether every promise that was checked was kept."""
        return not self.failed

    def __str__(self) -> str:
        lines = [f"{len(self.passed)} kept, {len(self.failed)} broken, {len(self.skipped)} skipped"]
        lines += [f"  {check.name}: {check.reason}" for check in self.failed]
        return "\n".join(lines)
