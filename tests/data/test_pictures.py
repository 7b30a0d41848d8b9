"""A folder of pictures from real life: each mode as a viewer shows it, odd files left out and
named.
"""

import io
import struct
import zlib

import numpy as np
import pytest
import sample_data as sample
import torch
from PIL import Image, TiffImagePlugin

from labkit import data
from labkit.data import _picture
from labkit.data._picture import NoPicture, pixels_of
from labkit.errors import DataError

RAMP = np.linspace(0, 65535, 4096).astype(np.uint16).reshape(64, 64)
WHITE, RED = (255, 255, 255), (200, 10, 30)


def encoded(image, kind="PNG", **settings):
    stream = io.BytesIO()
    image.save(stream, kind, **settings)
    return stream.getvalue()


def read(image, kind="PNG", **settings):
    """The pixels (H, W, 3) that labkit reads of an image saved in this format."""
    return pixels_of(encoded(image, kind, **settings), None).permute(1, 2, 0).numpy()


def half_clear(mode, colour, hidden):
    """Two pixels of a mode with an alpha channel: the left one opaque, the right one fully
    transparent.
    """
    image = Image.new(mode, (2, 1), (*colour, 255))
    image.putpixel((1, 0), (*hidden, 0))
    return image


# ---- grey of more than 8 bits


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bit_grey_keeps_its_upper_8_bits(kind):
    pixels = read(Image.fromarray(RAMP), kind)
    np.testing.assert_array_equal(pixels[..., 0], RAMP >> 8)
    assert (pixels == pixels[..., :1]).all()
    assert pixels.mean() == pytest.approx(127.5, abs=0.5)


def test_16_bit_grey_of_either_byte_order_is_the_same():
    big = Image.frombytes("I;16B", (64, 64), RAMP.astype(">u2").tobytes())
    np.testing.assert_array_equal(read(big, "TIFF"), read(Image.fromarray(RAMP), "TIFF"))


def tiff(bits, photometric, data, shape):
    """A little-endian TIFF of one strip of grey."""
    height, width = shape
    entries = [
        (256, 4, width),
        (257, 4, height),
        (258, 3, bits),
        (259, 3, 1),
        (262, 3, photometric),
    ]
    entries += [(273, 4, 8), (277, 3, 1), (278, 4, height), (279, 4, len(data))]
    table = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    return (
        struct.pack("<2sHI", b"II", 42, 8 + len(data))
        + data
        + struct.pack("<H", len(entries))
        + table
        + bytes(4)
    )


def test_12_bit_grey_is_scaled_by_12_bits():
    # two values in three bytes, the first one in the upper bits: 0x800 and 0xFFF
    pixels = pixels_of(tiff(12, 1, bytes([0x80, 0x0F, 0xFF]), (1, 2)), None)
    assert pixels[0].tolist() == [[0x80, 0xFF]]


def test_16_bit_grey_whose_zero_is_white_is_a_negative():
    pixels = pixels_of(tiff(16, 0, np.array([0, 0x4000, 0xFFFF], "<u2").tobytes(), (1, 3)), None)
    assert pixels[0].tolist() == [[255, 255 - 0x40, 0]]


@pytest.mark.parametrize("mode", ["I", "F"])
def test_a_mode_that_does_not_say_what_is_white_is_named(mode):
    image = Image.fromarray(np.zeros((4, 4), {"I": np.int32, "F": np.float32}[mode]))
    with pytest.raises(NoPicture, match=f"the mode {mode},"):
        read(image, "TIFF")


def test_signed_16_bits_are_refused_by_their_mode():
    image = Image.fromarray(np.full((4, 4), -5, np.int32))
    with pytest.raises(NoPicture, match="the mode I,"):
        read(image, "TIFF")


# ---- what is transparent


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize(
    ("mode", "colour", "hidden"), [("RGBA", RED, (0, 0, 0)), ("LA", (90,), (0,))]
)
def test_what_is_transparent_lies_on_white_whatever_colour_it_hides(kind, mode, colour, hidden):
    shown = colour if len(colour) == 3 else colour * 3
    assert read(half_clear(mode, colour, hidden), kind).tolist() == [[list(shown), list(WHITE)]]


def test_half_transparent_is_mixed_with_white():
    (pixel,) = read(Image.new("RGBA", (1, 1), (0, 100, 200, 51)))[0]
    assert pixel.tolist() == pytest.approx(
        [255 * 0.8, 255 * 0.8 + 100 * 0.2, 255 * 0.8 + 200 * 0.2], abs=1
    )


def test_webp_and_gif_lie_on_white_too():
    assert read(half_clear("RGBA", RED, (0, 0, 0)), "WEBP", lossless=True).tolist() == [
        [list(RED), list(WHITE)]
    ]
    palette = Image.new("P", (2, 1))
    palette.putpalette([*RED, 0, 0, 0])
    palette.putpixel((1, 0), 1)
    for kind in ("GIF", "PNG"):
        assert read(palette, kind, transparency=1).tolist() == [[list(RED), list(WHITE)]]
        assert read(palette, kind).tolist() == [[list(RED), [0, 0, 0]]]


def test_a_colour_of_a_palette_may_be_half_transparent():
    palette = Image.new("P", (1, 1))
    palette.putpalette([0, 0, 0])
    assert read(palette, transparency=bytes([102])).tolist() == [[[153, 153, 153]]]


@pytest.mark.parametrize(
    ("mode", "colour", "clear"), [("L", 7, 7), ("RGB", (1, 2, 3), (1, 2, 3)), ("1", 0, 0)]
)
def test_a_colour_that_stands_for_transparent_becomes_white(mode, colour, clear):
    assert read(Image.new(mode, (1, 1), colour), transparency=clear).tolist() == [[list(WHITE)]]


def test_a_value_of_16_bits_that_stands_for_transparent_becomes_white_and_its_neighbours_stay():
    grey = Image.fromarray(np.array([[0x1234, 0x1235]], np.uint16))
    assert read(grey, transparency=0x1234)[0, :, 0].tolist() == [255, 0x12]


def png(depth, kind, width, row, transparency):
    """A PNG of one row, as Pillow cannot write them: colours of 16 bits."""

    def chunk(name, content):
        return (
            struct.pack(">I", len(content))
            + name
            + content
            + struct.pack(">I", zlib.crc32(name + content))
        )

    head = struct.pack(">IIBBBBB", width, 1, depth, kind, 0, 0, 0)
    chunks = [
        (b"IHDR", head),
        (b"tRNS", transparency),
        (b"IDAT", zlib.compress(b"\0" + row)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in chunks)


def test_colours_of_16_bits_keep_their_upper_8_and_their_transparency():
    clear, other = (
        struct.pack(">HHH", 0x8001, 0x2002, 0x1003),
        struct.pack(">HHH", 0x4001, 0x2002, 0x1003),
    )
    pixels = pixels_of(png(16, 2, 2, clear + other, clear), None)
    assert pixels.permute(1, 2, 0).tolist() == [[list(WHITE), [0x40, 0x20, 0x10]]]


# ---- other modes, other formats


@pytest.mark.parametrize(
    ("mode", "kind", "tolerance"),
    [("RGB", "PNG", 0), ("RGB", "BMP", 0), ("RGB", "TIFF", 0), ("RGB", "WEBP", 3), ("RGB", "JPEG", 3),
     ("CMYK", "JPEG", 3), ("CMYK", "TIFF", 0), ("YCbCr", "JPEG", 3), ("YCbCr", "TIFF", 3), ("P", "PNG", 0),
     ("P", "BMP", 0), ("RGBX", "TIFF", 0)],
)  # fmt: skip
def test_each_mode_shows_its_colour(mode, kind, tolerance):
    image = Image.new("RGB", (16, 16), RED).convert(mode, palette=Image.Palette.ADAPTIVE)
    if mode == "RGBX":
        image = Image.merge("RGBX", (*image.split()[:3], Image.new("L", (16, 16), 9)))
    assert np.abs(read(image, kind).astype(int) - RED).max() <= tolerance


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP"])
def test_one_bit_is_black_and_white(kind):
    image = Image.new("1", (2, 1))
    image.putpixel((1, 0), 1)
    assert read(image, kind)[0, :, 0].tolist() == [0, 255]


def test_the_first_picture_of_an_animation_counts():
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, WHITE)]
    assert read(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)[
        0, 0
    ].tolist() == list(RED)


@pytest.mark.parametrize("turn", range(1, 9))
def test_each_orientation_is_turned_upright_as_pillow_does_it(turn):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = turn
    data_of = encoded(Image.fromarray(np.arange(96, dtype=np.uint8).reshape(4, 8, 3)), exif=exif)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data_of))))
    np.testing.assert_array_equal(pixels_of(data_of, None).permute(1, 2, 0), upright)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_exif_data_that_nobody_can_read_turns_nothing():
    zero = TiffImagePlugin.IFDRational(0, 0)
    exif = Image.Exif()
    exif[0x0112] = 6
    exif.get_ifd(0x8825)[2] = (zero, zero, zero)  # a place on earth of 0/0 degrees
    assert read(Image.new("RGB", (4, 2)), "JPEG", exif=exif).shape == (4, 2, 3)
    for broken in (
        b"Exif\0\0",
        b"Exif\0\0MM\0*\xff\xff\xff\xff",
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + bytes(40),
    ):
        assert read(Image.new("RGB", (4, 2)), "JPEG", exif=broken).shape == (2, 4, 3)


# ---- large ones


def test_a_large_jpeg_is_decoded_smaller_and_shows_the_same(monkeypatch):
    small = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    large = Image.fromarray(small).resize((400, 400), Image.Resampling.BILINEAR)
    whole = pixels_of(encoded(large, "JPEG", quality=95), 20).int()
    monkeypatch.setattr(_picture, "MAX_PIXELS", 45_000)
    halved = pixels_of(encoded(large, "JPEG", quality=95), 20).int()
    assert 0 < (whole - halved).abs().float().mean() < 2
    with pytest.raises(NoPicture, match=r"too large.*400 x 400"):
        pixels_of(encoded(large, "PNG"), 20)
    with pytest.raises(NoPicture, match="too large"):
        pixels_of(encoded(large, "JPEG"), None)  # without a size all pixels are wanted


@pytest.mark.slow
def test_a_photograph_of_108_megapixels_is_read():
    assert pixels_of(encoded(Image.new("RGB", (12000, 9000), RED), "JPEG"), 8).float().mean(
        (1, 2)
    ).tolist() == [pytest.approx(value, abs=3) for value in RED]


@pytest.mark.parametrize("side", [30_000, 100_000])
def test_a_file_that_claims_too_many_pixels_is_too_large_and_not_damaged(side):
    head = b"IHDR" + struct.pack(">II", side, side) + encoded(Image.new("RGB", (4, 4)))[24:29]
    good = encoded(Image.new("RGB", (4, 4)))
    with pytest.raises(NoPicture) as refused:
        pixels_of(good[:12] + head + struct.pack(">I", zlib.crc32(head)) + good[33:], 32)
    assert refused.value.kind.startswith("too large") and "damaged" not in str(refused.value)


def test_only_damage_is_called_damage():
    whole = encoded(Image.fromarray(RAMP))
    kinds = {"none of": b"<html>404", "empty": b"", "damaged": whole[: len(whole) // 2]}
    for kind, content in kinds.items():
        with pytest.raises(NoPicture) as refused:
            pixels_of(content, None)
        assert refused.value.kind.startswith(kind)


# ---- folders


@pytest.fixture
def folder(tmp_path):
    """Twelve pictures, all in one folder."""
    place = tmp_path / "photos"
    place.mkdir()
    for number in range(12):
        (place / f"{number:02}.png").write_bytes(sample.picture(number, 20, "PNG"))
    return place


def test_odd_files_are_left_out_counted_and_named_with_the_reason(folder, capsys):
    (folder / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
    (folder / "depth.tif").write_bytes(
        encoded(Image.fromarray(np.zeros((20, 20), np.float32)), "TIFF")
    )
    (folder / "cut.png").write_bytes((folder / "00.png").read_bytes()[:60])
    (folder / "gone.jpg").symlink_to("nowhere")
    whole = data.load(f"folder:{folder}", size=16)
    assert len(whole) == len(whole.labels) == 12
    said = capsys.readouterr().err
    assert "4 of 16 files left out" in said
    for name, reason in {
        "Thumbs.db": "none of JPEG",
        "depth.tif": "the mode F",
        "cut.png": "damaged",
    }.items():
        (line,) = [line for line in said.splitlines() if name in line]
        assert reason in line
    again = data.load(f"folder:{folder}", size=16)  # as it was kept
    assert torch.equal(whole.images, again.images) and torch.equal(whole.labels, again.labels)


def test_pictures_are_known_by_what_they_hold_not_by_their_names(folder):
    image = Image.fromarray(np.zeros((20, 20, 3), np.uint8))
    for kind, name in {
        "WEBP": "photo.jpg",
        "BMP": "photo.bmp",
        "TIFF": "photo",
        "GIF": "photo.dat",
    }.items():
        (folder / name).write_bytes(encoded(image, kind))
    assert len(data.load(f"folder:{folder}")) == 16


def test_labels_stay_with_their_pictures_when_others_are_left_out(tmp_path):
    sample.class_folders(tmp_path, ("ant", "bee"), count=5)
    right = data.load(f"folder:{tmp_path}")
    (tmp_path / "ant" / "2.png").write_bytes(b"")
    (tmp_path / "bee" / "notes.txt").write_text("x")
    (tmp_path / "README.md").write_text("not a class")
    found = data.load(f"folder:{tmp_path}")
    kept = [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert found.labels.tolist() == right.labels[kept].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert torch.equal(found.images, right.images[kept])


def test_a_folder_of_which_too_much_would_be_left_out_is_refused(folder):
    for number in range(4):
        (folder / f"bad-{number}.jpg").write_bytes(b"<html>404")
    assert len(data.load(f"folder:{folder}")) == 12  # 4 of 16
    (folder / "bad-4.jpg").write_bytes(b"<html>404")
    with pytest.raises(DataError, match="too many") as refused:
        data.load(f"folder:{folder}")
    assert "5 of 17 files left out" in str(refused.value) and "bad-0.jpg" in str(refused.value)


def test_files_beside_the_folders_of_the_classes_are_counted_among_all_files(tmp_path):
    sample.class_folders(tmp_path, ("ant", "bee"), count=5)
    for picture in (tmp_path / "bee").iterdir():
        picture.unlink()
    (tmp_path / "bee" / "0.png").write_bytes(b"")
    (tmp_path / "README.md").write_text("not a class")
    with pytest.raises(DataError, match="none of bee") as refused:
        data.load(f"folder:{tmp_path}")
    assert "2 of 7 files left out" in str(refused.value)


def test_a_folder_without_a_single_picture_is_refused_with_the_reasons(tmp_path):
    (tmp_path / "depth.tif").write_bytes(
        encoded(Image.fromarray(np.zeros((4, 4), np.float32)), "TIFF")
    )
    with pytest.raises(DataError, match="the mode F"):
        data.load(f"folder:{tmp_path}")


def test_a_class_of_which_no_picture_is_left_is_refused_by_its_name(tmp_path):
    sample.class_folders(tmp_path, ("ant", "bee"), count=9)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "0.png").write_bytes(b"")
    with pytest.raises(DataError, match="none of cat"):
        data.load(f"folder:{tmp_path}")


def test_two_unicode_forms_of_one_name_are_one_class(tmp_path):
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    sample.class_folders(tmp_path / "train", ("bee", composed, decomposed), count=2)
    sample.class_folders(tmp_path / "test", (decomposed,), count=1)
    train, test = (data.load(f"folder:{tmp_path}", split) for split in ("train", "test"))
    assert train.classes == test.classes == ("bee", composed)
    assert train.labels.tolist() == [0, 0, 1, 1, 1, 1]
    assert test.labels.tolist() == [1]


def test_classes_that_differ_by_case_or_a_space_are_two_and_that_is_said(tmp_path, capsys):
    sample.class_folders(tmp_path, ("Dog", "dog", "cat", "cat "), count=1)
    assert data.load(f"folder:{tmp_path}").classes == ("Dog", "cat", "cat ", "dog")
    said = capsys.readouterr().err
    assert "'Dog' and 'dog'" in said and "'cat' and 'cat '" in said
