"""Where the project's files are, for the tests that read them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "haptera"
CONTRACTS = ROOT / ".importlinter"


def modules_under(*folders: Path) -> list[Path]:
    """Return every Python file under the folders that exist, in a stable order."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def name_of(path: Path) -> str:
    """Return the short name of a file for test ids and messages."""
    return str(path.relative_to(ROOT))
