"""Compaction: the log keeps only the latest record of each key, at its old offset.

    job                       the input and the result of a pass: plain values, which are sent to another process
    parts                     the records of a batch, decompressed: a large batch in parts of bounded size
    records                   the records of a part, parsed in place
    key_map                   the latest offset of each key, in bounded memory
    transactions              which batches were aborted, and which markers are still needed
    batch_filter              which records of a batch are kept: all rules are there
    rebuilding                the new batch with these records
    grouping                  which segments are merged into one
    reading, cleaned_segment  reads batches from old files, and writes them to a new one
    throttle                  limits the bytes per second
    compact                   the whole pass
    cleanable                 which part of a log may be compacted now, and how much of it is dirty
    swap                      replaces old segments with new ones
    running                   one pass over a log that continues to change

A pass reads the keys of the dirty part of a log (what was written since the last pass), then rewrites all segments up
to the end of the keys that it has read, including the clean part. The rules are Apache Kafka's (`Cleaner.java`, with
the delete horizons of KIP-534), so that either server can continue where the other stopped. All modules except the last
three work on files only, not on a log in use. `compact` is called in another process than the server's.
"""
