"""The page while runs go on: for this machine only, new when a file has changed, errors in one sentence."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tacit.errors import ConfigError
from tacit.report import LiveReport, write_report


@contextmanager
def served(*folders: Path) -> Iterator[LiveReport]:
    live = LiveReport(folders)
    thread = threading.Thread(target=live.serve)
    thread.start()
    try:
        yield live
    finally:
        live.stop()
        thread.join()


def get(live: LiveReport, path: str = "", **headers: str) -> tuple[HTTPResponse, bytes]:
    parts = urlsplit(live.address)
    assert parts.hostname is not None
    connection = HTTPConnection(parts.hostname, parts.port)
    connection.request("GET", path if path.startswith("/") else parts.path + path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def version_in(page: bytes) -> str:
    found = re.search(r'<body data-live="&#34;([0-9a-f]{32})&#34;">', page.decode())
    assert found is not None
    return f'"{found[1]}"'


def test_new_content_once_a_file_has_changed(swept: Path) -> None:
    with served(swept) as live:
        answer, page = get(live)
        assert answer.status == 200 and b"3 runs." in page
        version = version_in(page)
        assert get(live, "content", **{"If-None-Match": version})[0].status == 304
        log = next(swept.glob("method=DPCL*/seeds/seed-0/progress.jsonl"))
        log.write_text(log.read_text().replace("finished", "finish"))
        next(swept.glob("method=DPCL*/metrics.json")).unlink()
        answer, body = get(live, "content", **{"If-None-Match": version})
        assert answer.status == 200 and answer.headers["ETag"] != version
        told = json.loads(body)
        assert "the run is not finished: 3 tasks were learned" in told["content"] and len(told["data"]["runs"]) == 3
        assert get(live, "content", **{"If-None-Match": str(answer.headers["ETag"])})[0].status == 304


def test_content_is_that_of_the_page(swept: Path, tmp_path: Path) -> None:
    with served(swept) as live:
        told = json.loads(get(live, "content")[1])
    page = write_report([swept], tmp_path / "page.html").read_text()
    assert told["content"].strip() in page
    plain = page.split('id="data">')[1].split("</script>")[0]
    assert json.loads(plain) == told["data"] and f"<title>{told['title']}</title>" in page


def test_a_run_that_has_not_begun(tmp_path: Path, a_run: Path) -> None:
    folder = tmp_path / "later"
    folder.mkdir()
    with served(folder) as live:
        _, page = get(live)
        assert "there is no run in" in page.decode() and "this page shows a run once it has begun" in page.decode()
        a_run.rename(folder / "first")
        answer, body = get(live, "content", **{"If-None-Match": version_in(page)})
        assert answer.status == 200 and len(json.loads(body)["data"]["runs"]) == 1


def test_only_the_printed_address_of_this_machine_answers(a_run: Path) -> None:
    with served(a_run) as live:
        parts = urlsplit(live.address)
        assert parts.hostname == "127.0.0.1" and len(parts.path) > 20
        assert get(live, "/")[0].status == get(live, "/wrong/")[0].status == 404
        assert get(live, "/wrong/content")[0].status == get(live, "config.yaml")[0].status == 404
        assert get(live, "../../etc/passwd")[0].status == 404
        answer, body = get(live, Host="evil.example")
        assert answer.status == 403 and b"own address only" in body
        answer, body = get(live)
        assert answer.headers["Cache-Control"] == "no-store" and "Access-Control-Allow-Origin" not in answer.headers
        assert b"connect-src 'self'" in body
        policy = body.split(b"Content-Security-Policy")[1].split(b">")[0]
        assert b"script-src 'nonce-" in policy and b"script-src 'unsafe-inline'" not in policy


def test_nothing_of_the_private_folder_is_read(a_run: Path) -> None:
    private = a_run / "seeds" / "seed-0" / "private"
    private.mkdir(exist_ok=True)
    with served(a_run) as live:
        version = version_in(get(live)[1])
        (private / "new").write_text("x")
        assert get(live, "content", **{"If-None-Match": version})[0].status == 304


def test_a_folder_that_is_deleted(a_run: Path) -> None:
    with served(a_run) as live:
        a_run.rename(a_run.with_name("moved"))
        answer, body = get(live, "content")
        assert answer.status == 503 and b"there is no folder" in body


def test_a_wrong_folder_or_port_is_refused(a_run: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        LiveReport([a_run / "nothing"])
    with served(a_run) as live, pytest.raises(ConfigError, match=r"cannot serve at port .* pass another --port"):
        LiveReport([a_run], urlsplit(live.address).port or 0)


def test_a_file_does_not_ask_for_more(a_run: Path) -> None:
    page = write_report([a_run]).read_text()
    assert "connect-src" not in page and "data-live" not in page
