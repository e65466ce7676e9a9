"""Files and lines of the library, the laboratory, the benchmarks and the tests, beside their limits.

    python benchmarks/count.py

It ends with 1 where a limit is passed.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Most lines and most files; the tests may be as long as the library.
LIMITS: dict[str, tuple[int | None, int | None]] = {
    "src/linkcal": (23_000, 125),
    "src/linkcal_lab": (6_000, None),
    "benchmarks": (2_000, None),
}
LIMITS |= {"tests": (None, None)}


def count(folder: Path) -> tuple[int, int]:
    """Lines and files of the Python code below a folder."""
    files = [path for path in folder.rglob("*.py") if "__pycache__" not in path.parts]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files), len(files)


def main() -> int:
    counted, passed = {name: count(ROOT / name) for name in LIMITS}, False
    for name, (lines, files) in counted.items():
        most_lines, most_files = LIMITS[name]
        most_lines = counted["src/linkcal"][0] if name == "tests" else most_lines
        over = (most_lines or lines) < lines or (most_files or files) < files
        passed = passed or over
        bounds = f"at most {most_lines:,} lines" + (f" in {most_files} files" if most_files else "")
        print(f"{name:16} {lines:7,} lines {files:4} files   {bounds}{'   OVER' if over else ''}")
    for folder in sorted(path for path in (ROOT / "src/linkcal").iterdir() if path.is_dir()):
        lines, files = count(folder)
        if files:
            print(f"  {folder.name:14} {lines:7,} lines {files:4} files")
    return int(passed)


if __name__ == "__main__":
    raise SystemExit(main())
