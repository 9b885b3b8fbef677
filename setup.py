"""Builds the package with the app: pyproject.toml has the rest."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithApp(build_py):  # type: ignore[misc]
    """Adds the app, its pages and its configuration as ``fdkvc/app``."""

    def run(self) -> None:
        """Build, and copy the app from the project's root, where Streamlit runs it."""
        super().run()
        if self.editable_mode:
            return
        root, target = Path(__file__).parent, Path(self.build_lib) / "fdkvc" / "app"
        for source in ("app.py", "pages/*.py", ".streamlit/config.toml"):
            for path in root.glob(source):
                copy = target / path.relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)


setup(cmdclass={"build_py": BuildWithApp})
