"""Offline check and repair of log directories: `moldau log verify` and `moldau log repair`.

    finding.py           a finding as data, with its severity and repair
    indexes.py           entries of an index, compared with the batches that they point to
    partition.py         one partition's directory
    partition_repair.py  the repairs of one partition's files
    directory.py         the files of a log directory itself: owner, checkpoints, leftovers
    metadata.py          the metadata log: snapshots, `quorum-state`, and the resulting image
    log_directories.py   all log directories of a broker, with the metadata that lists the expected partitions
    repair.py            from findings to actions, in rounds, until the check finds nothing more to repair

Only the command line uses this package. Only the two repair modules change files, and they remove records only on
request.

The check is stricter than startup. Startup trusts everything after a clean shutdown, and everything before the recovery
point after an unclean one.
"""
