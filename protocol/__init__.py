"""Kafka's wire protocol: converts bytes to messages and back. Imports no other package of Moldau.

Overview:

* `schema` has the building blocks of message declarations, `messages/` the declarations, one module per API;
* `compiler` turns a declaration into code for one version (`python -m moldau.protocol FetchRequest 12` prints it),
  `runtime` and `explain` are called by that code, `codec` is the public interface;
* `api` finds messages by API key and the versions of their headers;
* `records` and `compression` handle the content of `records` fields;
* `steps` has the generators of tasks that run in steps, such as the codecs of long messages;
* `errors` has Kafka's error codes and Moldau's exceptions, `uuid` Kafka's ids, `samples` random messages for tests.

Not obvious:

* Decoded records are views of the frame, so a frame exists as long as its records are referenced.
* A struct-typed field that was not set holds a read-only default that all messages share: assign a new struct.
* A decoder reads one message and ignores the following bytes of the buffer (`decode_at` returns where it ends).
"""
