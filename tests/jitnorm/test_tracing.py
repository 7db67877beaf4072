from __future__ import annotations

import json
from pathlib import Path

from python_process import run_python

TRACED = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
import jitnorm
trace.set_tracer_provider(provider)
from pathlib import Path
from jitnorm.cache import Artifact, Store, load_or_build
with provider.get_tracer("application").start_as_current_span("request"):
    for _ in range(2):
        load_or_build(Store(Path("cache")), "0" * 64, lambda: Artifact(b"12345", {"backend": "nvrtc"}))
spans = exporter.get_finished_spans()
request = next(span for span in spans if span.name == "request")
print(json.dumps([
    [span.name, dict(span.attributes), span.parent.span_id == request.context.span_id,
     span.end_time - span.start_time]
    for span in spans if span is not request
]))
"""
WITHOUT_THE_PACKAGE = """
import sys
sys.modules["opentelemetry"] = None
try:
    import jitnorm
except ImportError as error:
    print(error)
"""
WRONG_VALUE = """
try:
    import jitnorm
except ValueError as error:
    print(error)
"""


def test_loads_and_builds_are_spans_within_that_of_the_caller(tmp_path: Path) -> None:
    spans = json.loads(run_python(TRACED, cwd=tmp_path, JITNORM_OTEL="1"))
    assert [(name, attributes["jitnorm.event"]) for name, attributes, _, _ in spans] == [
        ("jitnorm.cache.load", "miss"),
        ("jitnorm.build", "build"),
        ("jitnorm.cache.load", "hit"),
    ]
    for _, attributes, is_child, nanoseconds in spans:
        assert attributes["jitnorm.key"] == "0" * 64
        assert is_child
        assert nanoseconds == round(attributes["jitnorm.seconds"] * 1e9)
    assert spans[1][1]["jitnorm.backend"] == "nvrtc"
    assert spans[2][1]["jitnorm.bytes"] == 5


def test_there_are_none_unless_asked_for(tmp_path: Path) -> None:
    assert json.loads(run_python(TRACED, cwd=tmp_path, JITNORM_OTEL="0")) == []


def test_a_missing_package_is_an_error_that_says_what_to_install(tmp_path: Path) -> None:
    answer = run_python(WITHOUT_THE_PACKAGE, cwd=tmp_path, JITNORM_OTEL="1")
    assert "pip install 'jitnorm[otel]', or unset JITNORM_OTEL" in answer


def test_another_value_is_an_error(tmp_path: Path) -> None:
    assert "JITNORM_OTEL is 'yes'; allowed are 1" in run_python(WRONG_VALUE, cwd=tmp_path, JITNORM_OTEL="yes")
