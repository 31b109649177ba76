"""Who may post the progress of queries."""

import httpx

from headrace_console.console_settings import ConsoleSettings
from headrace_console.tests.console_support import NOWHERE, code_of, running_console
from storage_engine.core.security.security_protocol import Secret


def test_progress_is_taken_from_programs_with_the_token_and_from_nobody_else() -> None:
    token = Secret("the token of the queries")
    settings = ConsoleSettings(bootstrap_servers=NOWHERE, port=0, progress_token=token)
    body = {"format": 1, "events": [{"kind": "idle"}]}
    right = {"X-Headrace-Progress": "1", "Authorization": f"Bearer {token.reveal()}"}
    with running_console(settings) as url:
        address = url + "api/v1/queries/progress"

        def post(headers: dict, body: object = body) -> tuple[int, str]:
            answer = httpx.post(address, json=body, headers=headers)
            return answer.status_code, code_of(answer)

        assert post({"Authorization": right["Authorization"]}) == (403, "csrf")
        assert post({"X-Headrace-Progress": "1"}) == (401, "log_in")
        assert post({**right, "Authorization": "Bearer x"}) == (401, "log_in")
        assert post({**right, "Origin": url.rstrip("/")}) == (403, "foreign_origin")
        assert post(right) == (400, "bad_request")
        assert post(right, {"format": 1, "events": ["x" * (257 << 10)]}) == (413, "too_large")
