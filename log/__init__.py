"""Storage of partitions: log directories in Apache Kafka's format.

The modules, from the lowest layer to the highest:

    files, memory_files           the file system as an interface; the real and the in-memory implementation
    descriptors                   a cache of open files; file ranges that are being sent
    names, checkpoints            names of files; checkpoint files and other small text files
    index, transaction_index      positions by offset and time; aborted transactions
    batch_inspection              reads a `.log` file batch by batch in bounded memory, across damage
    segment, segments             one `.log` file with its indexes; the segments of a log in order
    verification                  transactions that wait for the coordinator's confirmation (KIP-890)
    producer_state                the producer state of a partition
    producer_snapshots            the files of the producer state
    leader_epochs                 the start offset of each leader epoch
    config, validation            the settings of a log; the checks of an append
    lookup, flushing, retention   offsets by time; syncing files; which old segments are deleted
    compaction                    removal of records whose key has a later record: a subpackage
    partition_log                 the log of one partition
    future_log                    a copy of a log that moves to another log directory
    partition_directory           whether a directory is a partition's, by its contents
    partition_loading             opens the directory of one partition, with recovery after an unclean shutdown
    directory, broker_loading     a log directory; loading of all logs at startup
    manager                       all logs of a broker

This package uses no clock, event loop, thread or socket: `now_ms` is an argument.
"""
