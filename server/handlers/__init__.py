"""The handlers of the APIs, one module per API or family of APIs; the table `server.apis` names them.

A handler is a function ``handle(broker, context, request)``. It returns the response, None (the client expects no
response), or `DEFERRED` if it has arranged for ``context.reply(response)`` to be called later. It raises `KafkaError`
for client errors. ``failed(request, error)`` of the same module builds the API's response to an error that concerns the
whole request.
"""
