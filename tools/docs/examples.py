"""Write a page of the site for every notebook in ``examples``."""

import sys
from pathlib import Path

import mkdocs_gen_files

sys.path.insert(0, str(Path(__file__).parent))
from notebooks import notebooks, page

for script in notebooks():
    text, pictures = page(script)
    with mkdocs_gen_files.open(f"examples/{script.stem}.md", "w") as file:
        file.write(text)
    for name, content in pictures.items():
        with mkdocs_gen_files.open(f"examples/{name}", "wb") as picture:
            picture.write(content)
