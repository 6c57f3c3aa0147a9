"""Packages that register extensions, as `pip` would leave them."""


def install(folder, package, *lines):
    """Put the metadata of an installed package into `folder`."""
    there = folder / f"{package}-1.0.dist-info"
    there.mkdir(parents=True)
    (there / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", "utf-8")
    (there / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")
