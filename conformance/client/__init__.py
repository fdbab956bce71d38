"""Tests of any Kafka client: jobs for the client, while a broker misbehaves on purpose.

    moldau conformance-client --client kafka-python
    moldau conformance-client -- ./my-adapter

A scenario is a job and a broker with scripted faults. The client's author writes an adapter, a program that does jobs
(`adapter` has its protocol). The verdict follows from what the adapter reports, what the broker has stored, and the
broker's own record of requests. `scenario` declares scenarios, `scene` is what a scenario works with, `runner` runs
them, and the scenarios are in `scenarios`.
"""
