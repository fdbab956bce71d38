"""Tests of any Kafka server: what each API and each contract of the protocol requires, as cases with a verdict.

    moldau conformance HOST:PORT

A case sends requests to a server that it knows only by its address, and compares the responses with those of Apache
Kafka. `case` declares cases, `catalog` lists them, `check` is what a case works with, `runner` runs them, and `reports`
has the formats of the results. The cases are in `cases`, by area. The package uses the protocol and its test client,
and nothing of Moldau's server.
"""
