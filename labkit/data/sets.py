"""`load`: one name, one split, one ImageSet."""

from pathlib import Path

from labkit.data import catalog, cifar, decode, folders, idx, manifest, tiny
from labkit.data.download import compare_hash
from labkit.data.imageset import ImageSet
from labkit.errors import DataError

FASHION_CLASSES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)


def load(name, split="train", *, limit=None, seed=0, size=None):
    """A data set as uint8 images in memory.

    name     one of `labkit.data.names()`, or "folder:<path>" with one folder a class
    split    "train" or "test"; the "test" of tiny-imagenet is its official `val`
    limit    take only so many images, each class in proportion, drawn with `seed`; None: all
    size     only for folder: bring every image to this many pixels a side
    returns  ImageSet
    Raises   DataError: the set is missing or damaged; it says what to do
    """
    if split not in catalog.SPLITS:
        raise DataError(
            f"There is no split {split!r}.", expected=" or ".join(catalog.SPLITS), found=repr(split), fix="choose one"
        )
    if name.startswith("folder:"):
        whole = from_folder(Path(name.removeprefix("folder:")).expanduser(), split, size)
    elif size is not None:
        raise DataError(
            f"The images of {name} have one size already.",
            expected="size only for folder:<path>",
            found=f"size={size}",
            fix="resize in batches: .batches(128, size=224)",
        )
    else:
        whole = read(catalog.known(name), split, catalog.home(name))
    return whole if limit is None else whole.subset(limit, seed=seed)


def read(entry, split, folder):
    """One split of the set `entry` as it lies in `folder`."""
    folder = Path(folder)
    if not catalog.holds(folder, entry):
        raise catalog.missing(entry, folder)
    images, labels, classes, digest = READERS[entry.name](entry, split, folder)
    return ImageSet(
        images=images,
        labels=labels,
        classes=classes,
        name=entry.name,
        split=split,
        mean=entry.mean,
        std=entry.std,
        digest=digest,
    )


def read_fashion(entry, split, folder):
    prefix = {"train": "train", "test": "t10k"}[split]
    files = [f"{prefix}-images-idx3-ubyte.gz", f"{prefix}-labels-idx1-ubyte.gz"]
    listed = manifest.read(folder, entry.fix)
    if listed is None:
        raise catalog.missing(entry, folder, found="no manifest.json")
    digest = manifest.check(folder, files, listed, entry.fix)
    images, labels = (idx.read(folder / file, rank, entry.fix) for file, rank in zip(files, (3, 1), strict=True))
    if len(images) != len(labels):
        raise catalog.damaged(folder / files[1], f"{len(images)} labels", f"{len(labels)}", entry.fix)
    if labels.max() >= len(FASHION_CLASSES):
        raise catalog.damaged(folder / files[1], "labels from 0 to 9", f"{int(labels.max())}", entry.fix)
    return images[:, None], labels.long(), FASHION_CLASSES, digest


def read_cifar(entry, split, folder):
    """From the unpacked folder when it is there, else straight from the archive."""
    listed = manifest.read(folder, entry.fix)
    if (folder / entry.unpacked).is_dir():
        source, inside = folder / entry.unpacked, ""
        files = [f"{entry.unpacked}/{file}" for file in cifar.files(entry.name, split)]
        digest = manifest.check(folder, files, listed, entry.fix) if listed else decode.fingerprint(source)
    else:
        source, inside = folder / entry.archive, f"{entry.unpacked}/"
        digest = archive_digest(entry, folder, listed)
    return *cifar.read(source, entry.name, split, inside=inside, fix=entry.fix), digest


def read_tiny(entry, split, folder):
    """From the zip as it is (unpacking 120,000 files gains nothing), or from the tree."""
    listed = manifest.read(folder, entry.fix)
    kept = folder / f"decoded-{split}.safetensors"
    if (folder / entry.archive).exists() or listed:
        source, digest = folder / entry.archive, archive_digest(entry, folder, listed)
    else:
        source, digest = folder, decode.fingerprint(folder / entry.unpacked)
    return *decode.cached(kept, digest, lambda: tiny.read(source, split, fix=entry.fix)), digest


def archive_digest(entry, folder, listed):
    """sha256 of the archive, after comparing it with the manifest, or with the published hash where there is none."""
    if listed:
        return manifest.check(folder, [entry.archive], listed, entry.fix)
    path = folder / entry.archive
    if not path.is_file():
        raise catalog.missing(entry, folder, found=f"no {entry.archive}")
    compare_hash(path, entry.digest, entry)
    return decode.fingerprint(path)


READERS = {"fashion-mnist": read_fashion, "cifar10": read_cifar, "cifar100": read_cifar, "tiny-imagenet": read_tiny}


def from_folder(path, split, size):
    """The split of a reader's own folder; its mean and std are ImageNet's, which pretrained networks expect."""
    folders.find_level(path, split)
    digest = f"{decode.fingerprint(path)}-{size}"
    kept = path / f".labkit-{split}.safetensors"
    images, labels, classes = decode.cached(kept, digest, lambda: folders.read(path, split, size=size))
    return ImageSet(
        images=images,
        labels=labels,
        classes=classes,
        name=f"folder:{path}",
        split=split,
        mean=catalog.IMAGENET_MEAN,
        std=catalog.IMAGENET_STD,
        digest=digest,
    )
