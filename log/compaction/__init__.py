"""Compaction: of each key only the latest record stays, at its old offset.

    job                       what is to be compacted, and what came of it: plain values, which go to another process
    records                   the records of a batch, looked at in place
    key_map                   the latest offset of each key, in bounded memory
    transactions              which batches were aborted, which markers are still needed
    batch_filter              what stays of one batch: all rules are there
    grouping                  which segments become one
    reading, cleaned_segment  batches out of old files, and into a new one
    throttle                  bytes a second
    compact                   the whole pass
    cleanable                 which part of a log may be compacted now, and how much that would bring
    swap                      putting new segments in the place of old ones

A pass reads the dirty part of a log (what was written since the last pass) for its keys, then rewrites all segments up
to where it came, the clean part too. The rules are Apache Kafka's (`Cleaner.java`, with the delete horizons of
KIP-534), so that one goes on where the other stopped. Files in, files out: nothing but the last two knows of a log in
use, and whoever calls `compact` does so in another process than the server's.
"""
