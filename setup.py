"""Build step that pyproject.toml cannot express: the wheel carries `notebooks/` as `explorer/notebooks/`."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CARRIED = ("*.ipynb", "*/*.ipynb", "*/*.yaml")


class WithNotebooks(build_py):
    """Build of the package that copies the notebooks into it. An editable install finds them in the clone."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        source, target = Path(__file__).parent / "notebooks", Path(self.build_lib) / "explorer" / "notebooks"
        for file in sorted({file for pattern in CARRIED for file in source.glob(pattern)}):
            copy = target / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


setup(cmdclass={"build_py": WithNotebooks})
