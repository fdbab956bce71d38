"""Storage of partitions: Apache Kafka's log directory, read and written.

Bottom to top; each module's own text is its theory:

    files, memory_files       the file system as a port, the real one and its twin
    descriptors               open files are scarce; ranges of files that are being sent
    names, checkpoints        names of files, and the small text files
    index, transaction_index  finding positions by offset and time; aborted transactions
    batch_inspection          a `.log` file batch by batch, in bounded memory, and on over damage
    segment, segments         one `.log` with its indexes; the segments of a log in order
    verification              a transaction that the coordinator is asked about
    producer_state, snapshots what is remembered of producers, and its files
    leader_epochs             where each leader's records begin
    config, validation        what a topic's settings ask for; may these bytes be appended?
    lookup, flushing          offsets by time; bringing the log to the device
    compaction                of each key only the latest record stays: a package of its own
    partition_log             the log of one partition
    future_log                a copy of it on its way to another log directory
    loader                    opening a partition's directory, after any kind of stop
    directory, loading        a log directory; opening all logs at startup
    manager                   all logs of a broker

There is no clock, no asyncio, no thread and no socket here: `now_ms` is an argument.
"""
