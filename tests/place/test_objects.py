"""Objects of a place: whole or not at all, created once, never outside of the place."""

import threading

import pytest

from explorer.errors import PlaceError
from explorer.objects import DirectoryObjects, Missing, Objects, open_objects


def test_an_object_is_created_once(objects: Objects):
    assert objects.create("claims/run/1.json", b"mine")
    assert not objects.create("claims/run/1.json", b"yours")
    assert not objects.create("claims/run/1.json", b"m")
    assert objects.read("claims/run/1.json", max_bytes=10) == b"mine"


def test_who_finds_its_own_content_has_created_it(objects: Objects):
    # The answer to the first request may have been lost.
    assert objects.create("a", b"mine")
    assert objects.create("a", b"mine")


def test_of_many_creators_one_succeeds(objects: Objects):
    made, start = [], threading.Barrier(8)

    def create(number: int) -> None:
        start.wait()
        if objects.create("claim", f"holder {number}".encode()):
            made.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert objects.read("claim", max_bytes=100) == f"holder {made[0]}".encode()


def test_objects_are_listed_replaced_and_removed(objects: Objects):
    objects.put("results/a.json", b"1")
    objects.put("results/deep/b.json", b"22")
    objects.put("resultsx/c.json", b"3")
    assert {(listed.key, listed.size) for listed in objects.list("results/")} == {
        ("results/a.json", 1),
        ("results/deep/b.json", 2),
    }
    assert list(objects.list("nothing/")) == []
    objects.put("results/a.json", b"other")
    assert objects.read("results/a.json", max_bytes=5) == b"other"
    objects.remove("results/a.json")
    objects.remove("results/a.json")
    with pytest.raises(Missing, match=r"results/a\.json: no such object"):
        objects.read("results/a.json", max_bytes=5)


def test_no_more_is_read_than_allowed(objects: Objects):
    objects.put("large", b"12345")
    with pytest.raises(PlaceError, match="too large: 5 bytes, at most 4 are read"):
        objects.read("large", max_bytes=4)


@pytest.mark.parametrize("key", ["../a", "/etc/passwd", "a//b", "a/../b", "", ".hidden", "a\\b", "a/.b", "x" * 501])
def test_no_name_leads_out_of_the_place(objects: Objects, key: str):
    for act in (
        lambda: objects.create(key, b""),
        lambda: objects.put(key, b""),
        lambda: objects.read(key, max_bytes=1),
        lambda: objects.remove(key),
    ):
        with pytest.raises(PlaceError, match="is not the name of an object"):
            act()


def test_a_draft_that_a_crash_left_is_no_object(tmp_path):
    objects = DirectoryObjects(tmp_path)
    objects.put("results/a.json", b"1")
    (tmp_path / "results" / ".b.json.0011.tmp").write_bytes(b"half")
    assert [listed.key for listed in objects.list("results/")] == ["results/a.json"]


def test_a_link_in_the_place_is_not_listed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    objects = DirectoryObjects(tmp_path / "place")
    objects.put("results/a.json", b"1")
    (tmp_path / "place" / "results" / "b.json").symlink_to(tmp_path / "secret")
    assert [listed.key for listed in objects.list("results/")] == ["results/a.json"]


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "place").write_text("a file")
    with pytest.raises(PlaceError, match="cannot write"):
        DirectoryObjects(tmp_path / "place").put("a", b"")


def test_an_unknown_kind_of_place_is_named():
    with pytest.raises(PlaceError, match="unknown kind of place 's4'; known: az, gs, s3, or a directory"):
        open_objects("s4://bucket/path")


def test_a_bucket_without_its_extra_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(PlaceError, match=r"pip install 'explorer\[cloud\]'"):
        open_objects("s3://bucket/path")


@pytest.mark.slow
def test_a_bucket_that_refuses_is_named(bucket: str):
    objects = open_objects(bucket.replace("bucket-", "none-"))
    with pytest.raises(PlaceError, match="s3://none-"):
        objects.put("a", b"1")
