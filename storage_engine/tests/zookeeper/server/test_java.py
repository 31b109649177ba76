"""The Java that ZooKeeper needs, and what is told where there is none."""

from pathlib import Path

import pytest

from storage_engine.zookeeper.server.java import JavaError, find_java, major_version


def _fake_java(home: Path, *, release: str | None, script: str = "") -> Path:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return binary


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _fake_java(tmp_path / "home", release="21.0.2")
    _fake_java(tmp_path / "path", release="17.0.1")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == home
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert find_java() == tmp_path / "path" / "bin" / "java"


def test_a_java_without_a_release_file_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2"
    binary = _fake_java(tmp_path, release=None, script=script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == binary


@pytest.mark.parametrize(("release", "version"), [("11.0.2", 11), ("1.8.0_392", 8)])
def test_a_java_too_old_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, version: int
) -> None:
    binary = _fake_java(tmp_path, release=release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError) as caught:
        find_java()
    assert str(caught.value) == (
        f"{binary} is Java {version}, which is too old: "
        "install a JRE of version 17 or newer, or set JAVA_HOME to one"
    )


def test_no_java_at_all_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaError, match="Java was not found"):
        find_java()


@pytest.mark.parametrize("script", ["exit 1", "echo gibberish", "exec /no/such/file"])
def test_a_java_that_does_not_tell_its_version_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    _fake_java(tmp_path, release=None, script=script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match="does not report its version"):
        find_java()


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("22-ea", 22), ("x", None)]
)
def test_version_texts(text: str, version: int | None) -> None:
    assert major_version(text) == version
