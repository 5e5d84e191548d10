"""The interactive client: `holdfast` and `holdfast chat` on a terminal."""
