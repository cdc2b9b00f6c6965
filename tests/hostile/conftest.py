"""The figures of `make hostile`."""

import pytest

KINDS = {"tracebacks": "traceback", "data lost": "data lost", "silent wrong results": "silent wrong result"}


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call" and "test_cases.py::test_case[" in report.nodeid
    ]
    if reports:
        failed = [str(report.longrepr) for report in reports if report.failed]
        kinds = (
            f"{sum(f'AssertionError: {start}' in text for text in failed)} {kind}" for kind, start in KINDS.items()
        )
        terminalreporter.write_line(f"{len(reports)} hostile cases, {len(failed)} failed: {', '.join(kinds)}")
