#!/usr/bin/env python3
"""Makes an archive of an image the same for the same image, and prints its size.

usage: docker/archive.py FROM TO NAME...

FROM is what `podman save`, `buildah push docker-archive:` or `docker save` wrote, TO is for `docker load`, `podman load` and
`ctr images import`: the image's own parts as they were, named by their digests, under each NAME, without times.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import sys
import tarfile


def entry(name, size):
    made = tarfile.TarInfo(name)
    made.size, made.mode = size, 0o644
    return made


def write(source, file, names):
    with tarfile.open(source) as old, tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as new:
        [image] = json.load(old.extractfile("manifest.json"))
        config = old.extractfile(image["Config"]).read()
        digest = hashlib.sha256(config).hexdigest()
        identities = [identity.removeprefix("sha256:") for identity in json.loads(config)["rootfs"]["diff_ids"]]
        if len(identities) != len(image["Layers"]) or not all(re.fullmatch("[0-9a-f]{64}", identity) for identity in identities):
            raise SystemExit(f"archive: {source}: {len(image['Layers'])} layers for the digests {identities}")
        layers = [f"{identity}.tar" for identity in identities]
        manifest = json.dumps([{"Config": f"{digest}.json", "RepoTags": names, "Layers": layers}]).encode()
        for name, content in (("manifest.json", manifest), (f"{digest}.json", config)):
            new.addfile(entry(name, len(content)), io.BytesIO(content))
        size = 0
        for name, layer in dict(zip(layers, image["Layers"])).items():
            content = old.extractfile(layer)  # follows links
            found = hashlib.file_digest(content, "sha256").hexdigest()
            if f"{found}.tar" != name:
                raise SystemExit(f"archive: {source}: the layer {layer} has the digest {found}, and not the image's {name.removesuffix('.tar')}")
            length = content.seek(0, io.SEEK_END)
            content.seek(0)
            new.addfile(entry(name, length), content)
            size += length
        return digest, size


unfinished = sys.argv[2] + ".new"  # nobody takes it for the archive when this is interrupted
with contextlib.suppress(FileNotFoundError):
    os.remove(unfinished)
try:
    with open(unfinished, "xb") as file:
        digest, size = write(sys.argv[1], file, sys.argv[3:])
    os.replace(unfinished, sys.argv[2])
except BaseException:
    os.remove(unfinished)
    raise
print(f"{sys.argv[2]}  {size / 1e6:.1f} MB  sha256:{digest}")
