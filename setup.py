"""What pyproject.toml cannot say: the compiled library, and configs and corpus in the package.

The library is called through ctypes and touches Python's stable ABI only, so that one wheel per
platform serves every Python from 3.11 on.
"""

from glob import glob

from setuptools import Extension, find_packages, setup

setup(
    packages=[
        *find_packages(include=["layerdag", "layerdag.*"]),
        "layerdag._configs",
        "layerdag._corpus",
    ],
    package_dir={
        "layerdag": "layerdag",
        "layerdag._configs": "configs",
        "layerdag._corpus": "data",
    },
    include_package_data=False,
    ext_modules=[
        Extension(
            "layerdag._native",
            sources=sorted(glob("native/**/*.c", recursive=True)),
            depends=sorted(glob("native/**/*.h", recursive=True)),
            define_macros=[("Py_LIMITED_API", "0x030b0000")],
            extra_compile_args=["-O3", "-std=c11", "-ffp-contract=off", "-Wall", "-Wextra"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
