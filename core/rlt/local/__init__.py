"""The embedded engine: the Tinker protocol, served on 127.0.0.1 by a thread of this process.

The rest of rlt knows one client, the `tinker` SDK. This package is a server for it on torch and
peft, so that a run needs neither a key nor a network, and computes on the same machine exactly what
it would ask the hosted service to compute.

Importing this package imports nothing heavy; `rlt.local.server.start` does.
"""
