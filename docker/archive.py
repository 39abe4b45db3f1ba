#!/usr/bin/env python3
"""Makes an archive of an image the same for the same image, and prints its size.

usage: docker/archive.py FROM TO NAME...

FROM is what `podman save`, `buildah push docker-archive:` or `docker save` wrote, TO is for `docker load`, `podman load` and
`ctr images import`: the image's own parts as they were, named by their digests, under each NAME, without times.
"""

import hashlib
import io
import json
import os
import sys
import tarfile


def entry(name, size):
    made = tarfile.TarInfo(name)
    made.size, made.mode = size, 0o644
    return made


def write(source, target, names):
    with tarfile.open(source) as old, tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as new:
        [image] = json.load(old.extractfile("manifest.json"))
        config = old.extractfile(image["Config"]).read()
        digest = hashlib.sha256(config).hexdigest()
        layers = [f"{identity.removeprefix('sha256:')}.tar" for identity in json.loads(config)["rootfs"]["diff_ids"]]
        manifest = json.dumps([{"Config": f"{digest}.json", "RepoTags": names, "Layers": layers}]).encode()
        for name, content in (("manifest.json", manifest), (f"{digest}.json", config)):
            new.addfile(entry(name, len(content)), io.BytesIO(content))
        size = 0
        for name, layer in dict(zip(layers, image["Layers"])).items():
            content = old.extractfile(layer)  # follows links
            length = content.seek(0, io.SEEK_END)
            content.seek(0)
            new.addfile(entry(name, length), content)
            size += length
        return digest, size


unfinished = sys.argv[2] + ".new"  # nobody takes it for the archive when this is interrupted
digest, size = write(sys.argv[1], unfinished, sys.argv[3:])
os.replace(unfinished, sys.argv[2])
print(f"{sys.argv[2]}  {size / 1e6:.1f} MB  sha256:{digest}")
