"""Parts of an image and of a name that a test expects to exist."""

from moldau.metadata.checkpoint import parse_file_name
from moldau.metadata.image import MetadataImage
from moldau.metadata.registrations import PartitionRegistration


def partition_of(image: MetadataImage, topic: str, index: int) -> PartitionRegistration:
    """The registration of a partition that exists."""
    found = image.partition(topic, index)
    assert found is not None, f"{topic}-{index}"
    return found


def end_offset_of(file_name: str) -> int:
    """The end offset in the name of a snapshot."""
    snapshot = parse_file_name(file_name)
    assert snapshot is not None, file_name
    return snapshot.end_offset
