"""The SDK's exceptions, told in one line.

The SDK is slow to import and most commands never need it, so it is looked up among the modules that
are already loaded: an exception of its own cannot exist before.
"""

from __future__ import annotations

import re
import sys

from rlt.errors import RltError, RunError


def is_service_error(error: BaseException | None) -> bool:
    """Say whether the SDK raised this, as opposed to a plugin's own code."""
    tinker = sys.modules.get("tinker")
    if tinker is None:
        return False
    failed_retrieval = isinstance(error, ValueError) and "Error retrieving result" in str(error)
    return isinstance(error, tinker.TinkerError) or failed_retrieval


def is_refusal(error: BaseException) -> bool:
    """Say whether the service answered that it cannot do this, as opposed to not answering well."""
    tinker = sys.modules.get("tinker")
    if tinker is None:
        return False
    kinds = (tinker.RequestFailedError, tinker.NotFoundError, tinker.BadRequestError,
             tinker.UnprocessableEntityError)  # fmt: skip
    return isinstance(error, kinds)


def explain(error: BaseException) -> RltError | None:
    """Return the error as one of ours, with what to do; None when it is not the SDK's."""
    if not is_service_error(error):
        return None
    import tinker  # noqa: PLC0415 - it is loaded already

    if isinstance(error.__cause__, tinker.TinkerError):
        error = error.__cause__  # the SDK wraps the failure of some requests in a ValueError
    message = re.sub(r" for self\.request_id=.*", "", " ".join(str(error).split()))
    detail = re.fullmatch(r"Error code: (\d+) - \{'detail': (['\"])(.*)\2\}", message)
    message = detail[3] if detail else message
    if isinstance(error, tinker.AuthenticationError | tinker.PermissionDeniedError):
        return RunError(f"the service refused the API key ({message}); check TINKER_API_KEY")
    if isinstance(error, tinker.APIConnectionError):
        return RunError(
            f"the service does not answer ({message}); check the network and --base-url"
        )
    if isinstance(error, tinker.RequestFailedError):
        return RunError(
            f"the service could not do a request: {message.removeprefix('Request failed: ')}"
        )
    return RunError(f"the service refused a request: {message}")
