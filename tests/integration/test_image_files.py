"""NIfTI, PNG and CSV files: nibabel, Pillow and Python's csv see what we see, and damage gives an error or the right data."""

import csv
import gzip
import io
import os
import random
import struct
import zlib

import nibabel
import numpy as np
import pytest
from PIL import Image

from image_oracle import Probe

TYPES = ["u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
THOROUGH = os.environ.get("TRAINYARD_THOROUGH") == "1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="module")
def probe(folder):
    with Probe(folder) as probe:
        yield probe


def header_field(content, offset, fmt, value, order):
    return content[:offset] + np.array([value], order + fmt).tobytes() + content[offset + np.dtype(fmt).itemsize :]


def nifti(rng, code, order, shape=(5, 4, 3), slope=None, affine="sform"):
    """The bytes of a file that nibabel wrote."""
    if code[0] == "f":
        values = rng.normal(size=shape) * 1000
    else:
        info = np.iinfo(code)
        values = rng.integers(info.min, info.max, size=shape, dtype=code, endpoint=True)
    matrix = np.eye(4)
    matrix[:3] = rng.normal(size=(3, 4)) * 10
    header = nibabel.Nifti1Header(endianness=order)
    header.set_data_dtype(np.dtype(code).newbyteorder(order))
    image = nibabel.Nifti1Image(values.astype(code), None, header)
    if affine == "sform":
        image.set_sform(matrix, 1)
    elif affine == "qform":
        rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        matrix[:3, :3] = rotation * [0.5, 0.7, 2.5]
        image.set_qform(matrix, 1)
    else:
        image.header.set_zooms([0.5, 0.75, 3.0, 1.0][: len(shape)])
        image.header["sform_code"] = image.header["qform_code"] = 0
    content = image.to_bytes()
    if slope:
        content = header_field(content, 112, "f4", slope[0], order)
        content = header_field(content, 116, "f4", slope[1], order)
    else:
        content = header_field(content, 112, "f4", 0, order)
    return content


def agrees(probe, path):
    theirs = nibabel.load(path)
    answer, ours = probe.values_of("nifti", path=path)
    expected = theirs.get_fdata(dtype=np.float64).astype(np.float32)
    shape = list(expected.shape) + [1] * (3 - expected.ndim)
    while len(shape) > 3 and shape[-1] == 1:
        shape.pop()
    assert answer["shape"] == shape
    assert np.array_equal(ours, expected.reshape(shape), equal_nan=True), path
    # The rotation of a quaternion is summed in another order: an ulp of its entries, times millimetres.
    assert np.allclose(np.reshape(answer["affine"], (4, 4)), theirs.affine, rtol=0, atol=1e-12 * (1 + np.abs(theirs.affine).max()))
    assert answer["type"] == int(theirs.header["datatype"])


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("code", TYPES)
def test_every_type_order_and_slope(probe, folder, code, order, gz):
    rng = np.random.default_rng(TYPES.index(code) * 4 + 2 * gz + (order == ">"))
    cases = [(slope, "sform", (5, 4, 3)) for slope in (None, (0, 7), (1, 0), (2.5, -1024), (float("nan"), 3), (-0.1, 0.1))]
    cases += [(None, "qform", (33, 2, 35)), (None, "pixdim", (7, 65, 34)), ((0.5, 1), "pixdim", (4, 3, 2, 3)), (None, "sform", (6, 5)), (None, "sform", (3, 2, 4, 1))]
    for slope, affine, shape in cases:
        path = folder / ("case.nii.gz" if gz else "case.nii")
        content = nifti(rng, code, order, shape, slope, affine)
        path.write_bytes(gzip.compress(content) if gz else content)
        agrees(probe, path)


def test_gzip_of_several_members_and_with_more_behind(probe, folder):
    content = nifti(np.random.default_rng(1), "i2", "<")
    path = folder / "members.nii.gz"
    for whole in (gzip.compress(content[:400]) + gzip.compress(content[400:]), gzip.compress(content + b"more" * 100), gzip.compress(content) + bytes(64)):
        path.write_bytes(whole)
        agrees(probe, path)


def with_header(offset, fmt, value):
    return lambda content: header_field(content, offset, fmt, value, "<")


REFUSED = {
    "truncated": (lambda c: c[:-1], "truncated: its int16 voxels end at byte 472"),
    "a header alone": (lambda c: c[:348], "truncated"),
    "half a header": (lambda c: c[:100], "offset 100: truncated: a header has 348 bytes"),
    "nothing": (lambda c: b"", "truncated"),
    "another file": (lambda c: b"\x89PNG" + bytes(400), "not a NIfTI-1 file"),
    "NIfTI-2": (with_header(0, "i4", 540), "NIfTI-2 is not read"),
    "a pair": (lambda c: c[:344] + b"ni1\0" + c[348:], "in another file"),
    "RGB": (with_header(70, "i2", 128), "voxels of type RGB24 are not read"),
    "complex": (with_header(70, "i2", 32), "voxels of type complex64 are not read"),
    "no type": (with_header(70, "i2", 77), "77 is no type"),
    "no voxels": (with_header(44, "i2", 0), "an empty volume: dimension 2 has no voxels"),
    "negative": (with_header(44, "i2", -3), "dimension 2 has -3 voxels"),
    "no dimensions": (with_header(40, "i2", 0), "0 dimensions; expected 1 to 7"),
    "five dimensions": (lambda c: with_header(50, "i2", 4)(with_header(40, "i2", 5)(c)), "dimension 5 has 4 voxels; expected at most four"),
    "an absurd shape": (lambda c: b"".join([c[:42], np.array([32767] * 3, "<i2").tobytes(), c[48:]]), "its voxels take 64.0 TiB; expected at most 2.0 GiB"),
    "a shape that the file cannot fill": (with_header(42, "i2", 32000), "truncated"),
    "voxels in the header": (with_header(108, "f4", 300), "the voxels begin at 300"),
    "voxels nowhere": (with_header(108, "f4", float("nan")), "the voxels begin at nan"),
    "no intercept": (lambda c: with_header(116, "f4", float("inf"))(with_header(112, "f4", 2)(c)), "scl_slope is 2, and scl_inter is inf"),
}


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(probe, folder, name, gz):
    change, says = REFUSED[name]
    content = change(nifti(np.random.default_rng(1), "i2", "<", (5, 4, 3)))
    path = folder / ("bad.nii.gz" if gz else "bad.nii")
    path.write_bytes(gzip.compress(content) if gz else content)
    error = probe.ask("nifti", path=path)["error"]
    assert error.startswith(str(path))
    if gz and "truncated: its" in says:
        says = "truncated: 471 of 472 bytes, decompressed"
    assert says in error


def test_a_gzip_file_that_was_cut_or_changed(probe, folder):
    whole = gzip.compress(nifti(np.random.default_rng(1), "i2", "<", (50, 40, 30)))
    path = folder / "cut.nii.gz"
    for content, says in ((whole[: len(whole) // 2], "truncated gzip data"), (whole[:-8] + bytes(8), "incorrect data check"), (whole[:1000] + b"\xff" * 50 + whole[1050:], "gzip data")):
        path.write_bytes(content)
        assert says in probe.ask("nifti", path=path)["error"]
    assert "no such file" in probe.ask("nifti", path=folder / "none.nii")["error"]
    assert "not a file" in probe.ask("nifti", path=folder)["error"]


def test_bombs_are_refused(probe, folder):
    """A megabyte that stands for a gigabyte of voxels, or for one behind them, costs neither the memory nor the time."""
    content = nifti(np.random.default_rng(1), "u1", "<", (5, 4, 3))
    path = folder / "bomb.nii.gz"
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    path.write_bytes(packer.compress(content) + b"".join(packer.compress(zeros) for _ in range(256)) + packer.flush())
    assert "goes on for more than 16 MiB behind its values" in probe.ask("nifti", path=path)["error"]
    huge = header_field(header_field(content, 42, "i2", 30000, "<"), 44, "i2", 20000, "<")
    path.write_bytes(gzip.compress(huge))
    assert "so few bytes cannot be decompressed to that" in probe.ask("nifti", path=path)["error"]
    # Two million bytes could be 2 GB of voxels, which is allowed, and would be 8 of float32.
    for at, extent in ((42, 2048), (44, 1024), (46, 1000)):
        content = header_field(content, at, "i2", extent, "<")
    path.write_bytes(gzip.compress(content[:352]) + bytes(2_100_000))
    assert "its voxels take 7.8 GiB as float32; expected at most 2.0 GiB" in probe.ask("nifti", path=path)["error"]


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_size_of_a_voxel_is_in_millimetres_or_unknown(probe, folder, order):
    path = folder / "sizes.nii"
    content = nifti(np.random.default_rng(1), "u1", order, (5, 4, 3))

    def size(**fields):
        changed = content
        for at, kind, value in fields.values():
            changed = header_field(changed, at, kind, value, order)
        path.write_bytes(changed)
        return probe.ask("nifti", path=path)["voxel_mm"]

    none = {"sform": (254, "i2", 0), "qform": (252, "i2", 0), "x": (80, "f4", 0.5), "y": (84, "f4", 2), "z": (88, "f4", -3)}
    assert size(**none, unit=(123, "u1", 0)) == [0.5, 2, 3]
    assert size(**none, unit=(123, "u1", 2 + 8)) == [0.5, 2, 3]  # seconds are none of space's
    assert size(**none, unit=(123, "u1", 1)) == [500, 2000, 3000]
    assert size(**none, unit=(123, "u1", 3)) == pytest.approx([0.0005, 0.002, 0.003], rel=1e-12)
    assert size(**none | {"x": (80, "f4", 0)}, unit=(123, "u1", 2)) == [0, 2, 3], "nibabel takes it for 1"
    rows = {f"{row}{column}": (280 + 16 * row + 4 * column, "f4", value) for row, values in enumerate([(0, 2, 0), (3, 0, 0), (4, 0, 7)]) for column, value in enumerate(values)}
    assert size(**none | {"sform": (254, "i2", 1), **rows}, unit=(123, "u1", 2)) == [5, 2, 7], "the affine's columns, whatever pixdim says"


def mutated(rng, content):
    """Bits flipped, bytes cut, repeated or overwritten."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        kind, at = rng.randrange(5), rng.randrange(max(1, len(content)))
        if kind == 0:
            content[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1 and content:
            content[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del content[at : at + rng.randrange(1, 64)]
        elif kind == 3:
            content[at:at] = content[at : at + rng.randrange(1, 64)]
        else:
            at = rng.randrange(352)
            content[at : at + 2] = rng.choice([b"\xff\xff", b"\x00\x00", b"\x7f\xff", b"\xff\x7f"])
    return bytes(content)


def test_mutated_files_give_an_error_or_the_right_data(probe, folder):
    seed = int(os.environ.get("TRAINYARD_TEST_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    rng = random.Random(seed)
    whole = nifti(np.random.default_rng(seed), "i2", "<", (9, 8, 7), (2, 1))
    read = 0
    for i in range(5000 if THOROUGH else 500):
        gz = i % 2 == 1
        inner = mutated(rng, whole) if not gz or i % 4 == 1 else whole
        content = gzip.compress(inner) if gz else inner
        if gz and i % 4 == 3:
            content = mutated(rng, content)
        path = folder / ("mutated.nii.gz" if content[:2] == b"\x1f\x8b" else "mutated.nii")
        path.write_bytes(content)
        answer = probe.ask("nifti", path=path)
        if "error" in answer:
            assert answer["error"].startswith(str(path)), answer
            continue
        read += 1
        ours = np.fromfile(probe.out, np.float32).reshape(answer["shape"])
        try:
            theirs = nibabel.load(path).get_fdata().astype(np.float32)
        except Exception:  # what it refuses, such as a code of no meaning in a field that we do not read
            assert ours.size == np.prod(answer["shape"])
            continue
        header = gzip.open(path).read(112) if content[:2] == b"\x1f\x8b" else content[:112]
        if struct.unpack("<f", header[108:112])[0] == 0:
            continue  # where it is not said where values begin, we begin behind the header, and nibabel takes the header for values
        assert np.array_equal(ours.ravel(), theirs.ravel(), equal_nan=True), (seed, i)
    assert read > 20, "mutations that leave a file readable test the data"


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("code", [4, 16])
def test_nibabel_reads_what_we_write(probe, folder, code, gz):
    rng = np.random.default_rng(code + gz)
    path = folder / ("written.nii.gz" if gz else "written.nii")
    affine = np.eye(4)
    affine[:3] = rng.normal(size=(3, 4)) * 3
    for shape in ((40, 33, 70), (3, 4, 5, 2), (6,), (2, 3)):
        values = rng.integers(-32768, 32768, shape).astype(np.float32) + (0 if code == 16 else 0.25)
        assert probe.ask("write_nifti", values=values, path=path, affine=affine.ravel().tolist(), type=code) == {}
        theirs = nibabel.load(path)
        assert np.array_equal(theirs.get_fdata(), np.rint(values) if code == 4 else values)
        assert np.allclose(theirs.affine, affine.astype(np.float32), rtol=0, atol=0)
        assert np.allclose(theirs.header.get_zooms()[:3][: len(shape)], np.linalg.norm(affine[:3, :3], axis=0)[: len(shape)], rtol=1e-6)
        agrees(probe, path)
    before = path.read_bytes()
    probe.ask("write_nifti", values=values, path=path, affine=affine.ravel().tolist(), type=code)
    assert path.read_bytes() == before, "the same bytes for the same image"
    if code == 4:
        answer = probe.ask("write_nifti", values=np.full((2, 2), 40000, np.float32), path=path, affine=affine.ravel().tolist(), type=4)
        assert answer == {"refused": "40000 is no voxel of int16"} and path.read_bytes() == before


PNGS = {
    "grey 8": ("L", np.uint8, (37, 20)),
    "grey 16": ("I;16", np.uint16, (37, 20)),
    "RGB": ("RGB", np.uint8, (13, 21, 3)),
    "bits": ("1", np.uint8, (9, 13)),
}


@pytest.mark.parametrize("name", PNGS)
def test_pillow_and_we_see_the_same_pixels(probe, folder, name):
    mode, dtype, shape = PNGS[name]
    rng = np.random.default_rng(len(name))
    values = rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    image = Image.fromarray(values > 127) if mode == "1" else Image.fromarray(values)
    path = folder / "theirs.png"
    image.save(path)
    answer, ours = probe.values_of("png", path=path)
    assert answer["bits"] == (16 if dtype == np.uint16 else 8)
    assert np.array_equal(ours, np.asarray(image.convert("L") if mode == "1" else image).astype(np.float32))
    if mode == "RGB":
        image.quantize(16).save(path)
        assert np.array_equal(probe.values_of("png", path=path)[1], np.asarray(image.quantize(16).convert("RGB")))
    if mode != "1":
        assert probe.ask("write_png", values=values.astype(np.float32), path=folder / "ours.png", bits=answer["bits"]) == {}
        assert np.array_equal(np.asarray(Image.open(folder / "ours.png")), values)


def test_png_that_is_refused(probe, folder):
    path = folder / "bad.png"
    Image.fromarray(np.zeros((4, 4, 4), np.uint8)).save(path)
    assert "RGB with transparency; expected grey or RGB" in probe.ask("png", path=path)["error"]
    Image.fromarray(np.zeros((64, 64), np.uint8)).save(path, transparency=0)
    assert "a transparent colour" in probe.ask("png", path=path)["error"]
    noise = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (40, 40), np.uint8)).save(noise, "png")
    whole = noise.getvalue()
    for size in range(0, len(whole) - 12, 41):  # the last chunk holds nothing but its name
        path.write_bytes(whole[:size])
        assert probe.ask("png", path=path)["error"].startswith(str(path)), size
    rng = random.Random(2)
    for _ in range(300):
        path.write_bytes(mutated(rng, whole))
        answer = probe.ask("png", path=path)  # every chunk has a checksum: no other pixels
        assert "error" in answer or np.array_equal(np.fromfile(probe.out, np.float32).reshape(answer["shape"]), np.asarray(Image.open(io.BytesIO(whole))))
    header = whole[16:24]
    size = b"\x00\x00\x7f\xff" * 2
    bomb = whole.replace(header, size)
    crc = zlib.crc32(b"IHDR" + size + whole[24:29])
    path.write_bytes(bomb[:29] + crc.to_bytes(4, "big") + bomb[33:])
    assert "32767 x 32767 pixels are more than its" in probe.ask("png", path=path)["error"]
    path.write_bytes(path.read_bytes() + bytes(100_000))  # a bit could become a byte, and these are bytes
    assert "32767 x 32767 pixels are more than its" in probe.ask("png", path=path)["error"]
    path.write_bytes(path.read_bytes() + bytes(1_000_000))  # which could hold them, and not in as much memory as there may be
    assert "32767 x 32767 pixels take 4.0 GiB; expected at most 1.0 GiB" in probe.ask("png", path=path)["error"]
    assert "is no pixel of 8 bits" in probe.ask("write_png", values=np.full((2, 2), 300, np.float32), path=path, bits=8)["refused"]


def test_csv_reads_what_python_writes_and_back(probe, folder):
    rng = random.Random(3)
    for i in range(100):
        columns = [f"c{c}" for c in range(rng.randrange(1, 6))]
        rows = [["".join(rng.choice('ab ,"\n\r;é\t') for _ in range(rng.randrange(6))) for _ in columns] for _ in range(rng.randrange(8))]
        # A lone carriage return ends no line in RFC 4180; a row of one empty cell is an empty line, which readers skip.
        rows = [[cell.replace("\r", "") for cell in row] for row in rows if len(row) > 1 or row[0].strip("\r")]
        text = io.StringIO()
        csv.writer(text, lineterminator=rng.choice(["\n", "\r\n"])).writerows([columns] + rows)
        # The last line may have lost its end, or half of it.
        content = text.getvalue()[: -1 if rng.random() < 0.3 else None].encode(rng.choice(["utf-8", "utf-8-sig"]))
        path = folder / ("table.csv.gz" if i % 2 else "table.csv")
        path.write_bytes(gzip.compress(content) if i % 2 else content)
        assert probe.ask("csv", path=path) == {"columns": columns, "rows": rows}, content
        assert probe.ask("write_csv", path=path, columns=columns, rows=rows) == {}
        with (gzip.open(path, "rt", newline="") if i % 2 else open(path, newline="")) as file:
            assert [row for row in csv.reader(file)] == [columns] + rows


@pytest.mark.parametrize(
    "content, says",
    [
        ("", "line 1: an empty file"),
        ("\n\n", "line 1: an empty file"),
        ("a,a\n", 'line 1: two columns are named "a"'),
        ("a,,b\n", "line 1: column 2 has no name"),
        ("a,b\n1,2\n\n3\n", "line 4: 1 cells; expected 2"),
        ('a,b\n1,"x\n', "line 2: a quote begins here and does not end"),
        ('a,b\n1,"x"y\n', "line 2: there is more behind the quote"),
        ('a,b\n"l\n2",2\n1,x"y\n', "line 4: a quote inside of"),
        ("a,b\n1,\xff\n", "line 2: not UTF-8"),
        ("a,b\n1,\0\n", "line 2: a byte of zero"),
        ('a,b\n1,"x\0y"\n', "line 2: a byte of zero"),
        ("a,b\n" + "," * (1 << 24), "line 2: more than 16777216 cells up to here"),
    ],
)
def test_a_bad_table_names_its_line(probe, folder, content, says):
    path = folder / "bad.csv"
    path.write_bytes(content.encode("latin-1"))
    assert f"{path}: {says}" in probe.ask("csv", path=path)["error"]
