"""Kafka's wire protocol: bytes to messages and back. Imports nothing of ours but itself.

Where to look:

* `schema` is the vocabulary in which messages are declared, `messages/` the declarations, one module per API;
* `compiler` turns a declaration into code for one version (`python -m moldau.protocol FetchRequest 12` prints it),
  `runtime` and `explain` are what that code calls, `codec` is the way in;
* `api` finds messages by API key and knows which headers stand before them;
* `records` and `compression` know what is inside the `records` fields;
* `errors` has Kafka's error codes and our exceptions, `uuid` Kafka's ids, `samples` makes random messages for tests.

Non-obvious:

* Decoded records are views of the frame, so a frame lives as long as its records are referred to.
* A struct-typed field that nobody set holds a read-only default that all messages share: assign, do not modify.
* Decoders look at one message; what follows it in the buffer is the caller's business (`decode_at` says where it ends).
"""
