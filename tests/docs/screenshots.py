#!/usr/bin/env python3
"""Pictures of the built site, to be looked at: every page wide and narrow, and a search.

    tests/docs/screenshots.py FOLDER [PAGE...]

It needs a Chromium on PATH (Debian's package chromium) and `make docs`.
"""

import functools
import http.server
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading

SITE = pathlib.Path(__file__).resolve().parents[2] / "build/site"
WINDOWS = {"wide": "1440,1800", "narrow": "500,1400"}  # Chromium's window is no narrower than 500


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium or not SITE.exists():
        sys.exit("screenshots: " + ("make docs has not built build/site" if chromium else "no chromium on PATH; Debian's package is chromium"))
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    names = sys.argv[2:] or sorted(page.stem for page in SITE.glob("*.html"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE)) as server, tempfile.TemporaryDirectory() as profile:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        site = f"http://127.0.0.1:{server.server_address[1]}"
        shots = [(name, f"{site}/{name}.html", size) for name in names for size in WINDOWS] + [("search", f"{site}/index.html?q=checkpoint", "wide")]
        for name, address, size in shots:
            picture = folder / f"{name}-{size}.png"
            subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}", f"--window-size={WINDOWS[size]}", "--virtual-time-budget=5000",
                            f"--screenshot={picture}", address], check=True, timeout=120, capture_output=True)
            print(picture)
        server.shutdown()


if __name__ == "__main__":
    main()
