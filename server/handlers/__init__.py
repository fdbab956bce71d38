"""What each API does. One module per family of APIs; `server.dispatch` names them in its table.

A handler is a function ``handle(broker, context, request)`` that returns the answer, None (no answer is wanted), or
`PARKED` after it has arranged for ``context.reply(answer)`` later. It raises `KafkaError` for the client's mistakes;
``failed(request, error)`` of the same module says how that API carries an error that concerns the whole request.
"""
