"""The files that the commands of Flower write: certificates, keys and apps."""

from __future__ import annotations

import ipaddress
import stat
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from cryptography.x509.oid import ExtensionOID
from typer.testing import CliRunner

from accord.cli import app
from accord.core.errors import AccordError
from accord.core.yamls import to_yaml
from accord.flower import supported
from accord.flower.app_folder import is_app, write_app
from accord.flower.keys import make_keys
from accord.flower.local import LocalFlower, node_config
from accord.study.study import load_study


def test_certificates_and_keys(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    make_keys(folder, ["fl.example.org", "127.0.0.1"], ["north", "south"], days=30)
    authority = x509.load_pem_x509_certificate((folder / "server/ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((folder / "server/server.crt").read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    assert isinstance(names, x509.SubjectAlternativeName)
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert 29 <= (server.not_valid_after_utc - server.not_valid_before_utc).days <= 31
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    found = set()
    for name in ("north", "south"):
        path = folder / name / f"{name}.key"
        own = load_ssh_private_key(path.read_bytes(), None)
        public = load_ssh_public_key((folder / "server" / f"{name}.pub").read_bytes())
        assert own.public_key() == public
        found.add(path.read_bytes())
        assert (folder / name / "ca.crt").read_bytes() == (folder / "server/ca.crt").read_bytes()
        assert sorted(p.name for p in (folder / name).iterdir()) == ["ca.crt", f"{name}.key"]
    assert len(found) == 2
    secret = list(folder.rglob("*.key"))
    assert len(secret) == 3
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in secret)


@pytest.mark.parametrize(
    ("hosts", "clients", "days", "said"),
    [
        ([], ["a"], 1, "--host: expected the names"),
        (["a b"], ["a"], 1, "--host: expected the names"),
        (["localhost"], [], 1, "name each client"),
        (["localhost"], ["../a"], 1, "found '../a'"),
        (["localhost"], ["server"], 1, "other than 'server'"),
        (["localhost"], ["a", "a"], 1, "must be named once"),
        (["localhost"], ["a"], 0, "--days"),
    ],
)
def test_keys_that_cannot_be_made(
    tmp_path: Path, hosts: list[str], clients: list[str], days: int, said: str
) -> None:
    with pytest.raises(AccordError, match=said):
        make_keys(tmp_path / "keys", hosts, clients, days)
    assert not (tmp_path / "keys").exists()


def test_keys_are_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for folder in (tmp_path, tmp_path / "mine"):
        with pytest.raises(AccordError, match="keys are never written over"):
            make_keys(folder, ["localhost"], ["a"], 1)
    assert (tmp_path / "mine").read_text() == "mine"


def test_an_app(study: dict[str, Any], tmp_path: Path) -> None:
    study["name"] = "My.Study_1"
    checked = load_study(study)
    folder = tmp_path / "app"
    write_app(folder, checked, {"out": 'a "quoted" \\ path', "min-clients": 2})
    write_app(folder, checked, {"min-clients": 2})  # an app may be written again
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == []
    assert project["project"]["name"] == "accord-my-study-1"
    assert project["tool"]["flwr"]["app"]["config"]["min-clients"] == 2
    assert load_study(folder / "accord_app" / "study.yaml").resolved == checked.resolved
    for name in ("server", "client"):
        compile((folder / "accord_app" / f"{name}.py").read_text(), name, "exec")
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.txt").write_text("mine")
    for strange in (tmp_path / "papers", tmp_path / "papers" / "thesis.txt"):
        with pytest.raises(AccordError, match="Choose another folder"):
            write_app(strange, checked)
    assert (tmp_path / "papers" / "thesis.txt").read_text() == "mine"


def test_another_version_of_flower_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supported, "version", lambda _: "1.42.0")
    with pytest.raises(AccordError, match=r"expected Flower 1\.41, .* found 1\.42\.0"):
        supported.require_flower()

    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(supported, "version", missing)
    words = ["flower", "keys", str(tmp_path / "k"), "--host", "a", "--client", "b"]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, AccordError)
    assert "pip install 'accord[flower]'" in str(done.exception)


def test_the_text_of_a_nodes_configuration() -> None:
    text = node_config({"name": "north", "partition": True, "keep": "/a b"})
    assert text == 'name="north" partition=true keep="/a b"'


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"deadline": float("nan")}, "deadline"),
        ({"deadline": 0}, "deadline"),
        ({"wait": -1}, "wait"),
        ({"min-clients": -1}, "min-clients"),
    ],
)
def test_an_app_with_wrong_values_is_not_written(
    study: dict[str, Any], tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(AccordError, match=said):
        write_app(tmp_path / "app", load_study(study), values)
    assert not (tmp_path / "app").exists()


def test_mistakes_are_told_before_flower_starts(study: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "run"

    def local(raw: dict[str, Any], **values: Any) -> None:
        LocalFlower(load_study(raw), out, None, False, values, lambda _: None).run()

    with pytest.raises(AccordError, match="min-clients: expected at most 3"):
        local(study, **{"min-clients": 99})
    with pytest.raises(AccordError, match="deadline"):
        local(study, deadline=-1)
    sites = {**study, "partition": {"scheme": "sites", "names": ["a"]}}
    with pytest.raises(AccordError, match="Start their SuperNodes by hand"):
        local(sites)
    assert not out.exists()
    for name in ("nodes", "flower"):
        (out / name).mkdir(parents=True)
        (out / name / "thesis.txt").write_text("mine")
        with pytest.raises(AccordError, match="Choose another folder"):
            local(study)
        assert (out / name / "thesis.txt").read_text() == "mine"
        (out / name / "thesis.txt").unlink()
        (out / name).rmdir()


def test_a_run_that_goes_on_writes_its_app_again(study: dict[str, Any], tmp_path: Path) -> None:
    out, checked = tmp_path / "run", load_study(study)
    (out / "trials").mkdir(parents=True)
    (out / "study.yaml").write_text(to_yaml(checked.resolved))
    local = LocalFlower(checked, out, None, False, {}, lambda _: None)
    for _ in range(2):
        local._prepare()
        assert is_app(out / "flower" / "app")
    with pytest.raises(AccordError, match="among the files of the record"):
        write_app(out / "flower" / "app", checked)  # a user should not
