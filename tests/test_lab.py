"""The reader's copies: made once, trusted, never overwritten; and a port that is free."""

import json
import os
import runpy
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import lesson_copies
import nbformat
import open_lab
import pytest
from nbformat.sign import NotebookNotary
from nbformat.v4 import new_code_cell, new_notebook, new_output

NAME = "1_saving_inputs.ipynb"
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A course of one lesson, and the place for the reader's copies."""
    monkeypatch.setattr(lesson_copies, "NOTEBOOKS", tmp_path / "notebooks")
    (tmp_path / "notebooks").mkdir()
    publish(tmp_path, "x = 1")
    return tmp_path


def publish(house, source):
    outputs = [new_output("stream", text="the answer")]
    cells = [new_code_cell(source, execution_count=1, outputs=outputs)]
    nbformat.write(new_notebook(cells=cells), house / "notebooks" / NAME)


def copy_lessons(house):
    lesson_copies.copy_lessons(house / "my_lessons")


def source(path):
    return nbformat.read(path, as_version=4).cells[0].source


def test_lesson_is_copied_and_trusted(house, capsys):
    copy_lessons(house)
    copy = house / "my_lessons" / NAME
    (cell,) = nbformat.read(copy, as_version=4).cells
    assert cell.source == "x = 1"
    assert (cell.outputs, cell.execution_count) == ([], None)
    notary = NotebookNotary(data_dir=str(house / "my_lessons" / ".jupyter" / "data"))
    assert notary.check_signature(nbformat.read(copy, as_version=4))
    assert capsys.readouterr().out == ""


def test_edited_copy_stays_and_nothing_is_said(house, capsys):
    copy_lessons(house)
    copy = house / "my_lessons" / NAME
    copy.write_text("what the reader wrote")
    copy_lessons(house)
    assert copy.read_text() == "what the reader wrote"
    assert capsys.readouterr().out == ""


def test_newer_lesson_is_announced_until_it_is_fetched(house, capsys):
    copy_lessons(house)
    publish(house, "x = 2")
    copy_lessons(house)
    copy_lessons(house)
    said = capsys.readouterr().out
    assert said.count("make fresh LESSON=1") == said.count("\n") == 2

    lesson_copies.fresh_copy("1", house / "my_lessons")
    copy_lessons(house)
    assert "is newer than" not in capsys.readouterr().out
    assert source(house / "my_lessons" / NAME) == "x = 1"
    assert source(house / "my_lessons" / "1_saving_inputs_fresh.ipynb") == "x = 2"


def test_fresh_copies_never_meet(house):
    copy_lessons(house)
    for _ in range(3):
        lesson_copies.fresh_copy("1", house / "my_lessons")
    assert len(list((house / "my_lessons").glob("*.ipynb"))) == 4


@pytest.mark.parametrize("number", ["", "7", "one"])
def test_fresh_copy_of_what(house, number):
    with pytest.raises(SystemExit, match="as in `make fresh LESSON=1`"):
        lesson_copies.fresh_copy(number, house / "my_lessons")


def test_copying_killed_half_way_is_finished(house, monkeypatch):
    def killed(path, content):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(lesson_copies, "write_whole", killed)
        copy_lessons(house)
    copy_lessons(house)
    assert source(house / "my_lessons" / NAME) == "x = 1"


def test_taken_port_is_passed_over():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]
        assert first < open_lab.free_port(first) < first + 50
        with pytest.raises(SystemExit, match="all taken"):
            open_lab.free_port(first, tries=1)


@pytest.mark.parametrize("name", ["", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"])
def test_browser_needs_a_display(name, monkeypatch):
    monkeypatch.setattr(open_lab.sys, "platform", "linux")
    for other in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(other, raising=False)
    if name:
        monkeypatch.setenv(name, ":0")
    assert open_lab.has_display() == bool(name)


@pytest.mark.slow  # takes a second and a half of waiting
def test_something_moves_while_jupyterlab_starts(capsys):
    threads = threading.active_count()
    with open_lab.a_dot_a_second("Starting"):
        time.sleep(1.5)
    assert capsys.readouterr().out == "Starting ."
    assert threading.active_count() == threads


def test_copies_are_in_the_language_asked_for(tmp_path, monkeypatch):
    def copies_in(language, how="copy_lessons", *lesson):
        monkeypatch.setenv("COURSE_LANGUAGE", language)
        runpy.run_path(lesson_copies.__file__)[how](*lesson, tmp_path / language)

    copies_in("zh_CN")
    assert source(tmp_path / "zh_CN" / NAME).startswith("# 1 · 保存输入")
    with pytest.raises(SystemExit, match="There are no lessons in xx: try LANGUAGE=zh_CN, or none"):
        copies_in("xx")
    with pytest.raises(SystemExit, match="There are no lessons in zh_TW: try LANGUAGE=zh_CN"):
        copies_in("zh_TW", "fresh_copy", "1")


@pytest.mark.skipif(not shutil.which("make"), reason="no make")
def test_a_desktops_own_language_is_not_the_courses(tmp_path):
    show = ["make", "-s", "-C", str(ROOT), "--eval=show:; @echo [$$COURSE_LANGUAGE]", "show"]
    env = os.environ | {"LANGUAGE": "zh_CN:zh"}
    said = [
        subprocess.run([*show, *more], env=env, capture_output=True, text=True).stdout
        for more in ([], ["LANGUAGE=zh_CN"])
    ]
    assert said == ["[]\n", "[zh_CN]\n"]


def test_menus_speak_the_language_that_is_installed_until_the_reader_chooses(tmp_path, monkeypatch):
    settings = tmp_path / "config/lab/user-settings/@jupyterlab/translation-extension"
    chosen = settings / "plugin.jupyterlab-settings"
    monkeypatch.setattr(open_lab, "find_spec", lambda name: name.endswith("_zh_CN"))
    open_lab.speak("", tmp_path)
    open_lab.speak("fr", tmp_path)
    assert not chosen.exists()
    open_lab.speak("zh_CN", tmp_path)
    assert json.loads(chosen.read_text()) == {"locale": "zh_CN"}
    chosen.write_text('{"locale": "default"}')
    open_lab.speak("zh_CN", tmp_path)
    assert json.loads(chosen.read_text()) == {"locale": "default"}
