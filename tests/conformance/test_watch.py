"""Watches: order, selection, bookmarks, the initial list in the stream, versions that are too old."""

import time

import pytest

from api_client import JOBS, PODS, TABLE, job, kinds, pod, seconds
from servers import wait_until


def version(api):
    return api.get(JOBS).ok()["metadata"]["resourceVersion"]


def until(count):
    """Ends a watch after so many events that are no bookmarks."""
    seen = []

    def enough(event):
        if event["type"] != "BOOKMARK":
            seen.append(event)
        return len(seen) >= count

    return enough


def test_every_change_in_order(api, name):
    since = version(api)

    def change():
        api.post(JOBS, job(name)).ok(201)
        api.patch(f"{JOBS}/{name}", {"metadata": {"labels": {"a": "1"}}}).ok()
        api.delete(f"{JOBS}/{name}").ok()

    events = api.watch(JOBS, 20, until(3), change, resourceVersion=since)
    assert kinds(events) == [("ADDED", name), ("MODIFIED", name), ("DELETED", name)]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions)) and versions[0] > int(since), "also the deletion has a version of its own"
    assert api.watch(JOBS, 20, until(3), resourceVersion=since) == events, "the same later, from the history"


def test_the_last_step_of_a_pods_deletion_moves_its_time(api, name):
    first = api.post(PODS, pod(name, nodeName="n", terminationGracePeriodSeconds=40)).ok(201)["metadata"]

    def change():
        api.delete(f"{PODS}/{name}").ok()
        time.sleep(1.1)  # times are whole seconds
        api.delete(f"{PODS}/{name}", gracePeriodSeconds=0).ok()

    events = api.watch(PODS, 20, until(3), change, resourceVersion=first["resourceVersion"], fieldSelector=f"metadata.name={name}")
    assert kinds(events) == [("MODIFIED", name), ("MODIFIED", name), ("DELETED", name)]
    going, last, gone = (event["object"]["metadata"] for event in events)
    assert [each["deletionGracePeriodSeconds"] for each in (going, last, gone)] == [40, 0, 0]
    assert 1 <= 40 - (seconds(going["deletionTimestamp"]) - seconds(last["deletionTimestamp"])) < 20, "the present, not when it was first asked for"


def test_it_goes_on_from_a_version(api, name):
    first = api.post(JOBS, job(name)).ok(201)["metadata"]["resourceVersion"]
    api.patch(f"{JOBS}/{name}", {"metadata": {"labels": {"a": "1"}}}).ok()
    assert kinds(api.watch(JOBS, 20, until(1), resourceVersion=first)) == [("MODIFIED", name)]


def test_a_version_that_the_server_has_not_reached_is_waited_for_without_a_word(api, name):
    """As after a restore from a backup: a list is refused (test_read.py), a watch is not."""
    ahead = str(int(version(api)) + 1_000_000)
    assert kinds(api.watch(JOBS, 4, until(1), lambda: api.post(JOBS, job(name)).ok(201), resourceVersion=ahead)) == []


@pytest.mark.parametrize("since", [None, "0"])
def test_without_a_version_what_there_is_comes_first(api, name, since):
    api.post(JOBS, job(name, {"labels": {"case": name}})).ok(201)
    events = api.watch(JOBS, 20, until(2), lambda: api.delete(f"{JOBS}/{name}").ok(), resourceVersion=since, labelSelector=f"case={name}")
    assert kinds(events) == [("ADDED", name), ("DELETED", name)]


def test_labels_move_objects_in_and_out(api, name):
    since = version(api)

    def change():
        api.post(JOBS, job(name)).ok(201)
        for value in ("1", "2", None):
            api.patch(f"{JOBS}/{name}", {"metadata": {"labels": {"in": value}}}).ok()

    events = api.watch(JOBS, 20, until(3), change, resourceVersion=since, labelSelector="in")
    assert kinds(events) == [("ADDED", name), ("MODIFIED", name), ("DELETED", name)]
    assert events[2]["object"]["metadata"]["labels"] == {"in": "2"}, "as it was when it was last selected"


def test_fields_select(api, name):
    since = version(api)

    def change():
        for each in ("a", "b"):
            api.post(JOBS, job(f"{name}-{each}")).ok(201)

    assert kinds(api.watch(JOBS, 20, until(1), change, resourceVersion=since, fieldSelector=f"metadata.name={name}-b")) == [("ADDED", f"{name}-b")]


def test_a_pods_phase_selects(api, name):
    since = version(api)

    def change():
        api.post(PODS, pod(name, nodeName="n")).ok(201)
        api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running"}}).ok()
        api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}}).ok()

    assert kinds(api.watch(PODS, 20, until(2), change, resourceVersion=since, fieldSelector="status.phase=Running")) == [("ADDED", name), ("DELETED", name)]


def test_it_ends_when_it_was_told(api):
    assert api.watch(JOBS, 1, resourceVersion=version(api), labelSelector="case=nobodys") == []


def test_a_bookmark_before_the_end(api, name):
    since = version(api)
    # Something that is not selected moves the version on. A real one sends it two seconds before the end, or, when it is held up then, none.
    tries = (api.watch(JOBS, 12, during=lambda: api.post(JOBS, job(f"{name}-{i}")).ok(201), resourceVersion=since, allowWatchBookmarks="true", labelSelector="case=nobodys") for i in range(1 if api.kind == "memory" else 3))
    events = next(filter(None, tries), [])
    assert {event["type"] for event in events} == {"BOOKMARK"}
    last = events[-1]["object"]
    assert last["kind"] == "TrainingJob" and last["apiVersion"] == "trainyard.dev/v1alpha1" and int(last["metadata"]["resourceVersion"]) > int(since)
    assert not last["metadata"].get("name")


def test_no_bookmark_unasked(api):
    assert api.watch(JOBS, 4, resourceVersion=version(api), labelSelector="case=nobodys") == []


def is_end(event):
    return event["type"] == "BOOKMARK" and event["object"]["metadata"].get("annotations", {}).get("k8s.io/initial-events-end") == "true"


@pytest.mark.parametrize("since", [None, "0"])
def test_the_list_in_the_stream(api, name, since):
    for i in range(3):
        api.post(JOBS, job(f"{name}-{i}", {"labels": {"case": name}})).ok(201)
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true", "resourceVersion": since, "labelSelector": f"case={name}"}
    if since:  # any version will do, as in the cache, which hears of a write a moment after the writer
        wait_until(lambda: len(api.get(JOBS, resourceVersion=since, labelSelector=f"case={name}").ok()["items"]) == 3, 30, "all objects in the cache")
    events = api.watch(JOBS, 30, is_end, **options)
    assert sorted(kinds(events)) == [("ADDED", f"{name}-{i}") for i in range(3)] and is_end(events[-1])
    newest = max(int(event["object"]["metadata"]["resourceVersion"]) for event in events[:-1])
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) >= newest
    # The stream goes on.
    later = api.watch(JOBS, 30, lambda event: event["type"] == "DELETED", lambda: api.delete(f"{JOBS}/{name}-1").ok(), **options)
    assert kinds(later)[-1] == ("DELETED", f"{name}-1")


@pytest.mark.parametrize("query, text", [
    ({"sendInitialEvents": "true"}, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
    ({"sendInitialEvents": "true", "resourceVersionMatch": "Exact"}, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
    ({"resourceVersionMatch": "NotOlderThan"}, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
])
def test_options_of_a_watch_that_are_refused(api, query, text):
    answer = api.watch(JOBS, 1, **query).refused(422, "Invalid", text)
    assert "resourceVersionMatch" in answer.fields


def test_a_version_that_is_no_longer_held(api, forgotten, name):
    """The first event is an ERROR in a 200 stream."""
    api.post(JOBS, job(name)).ok(201)
    events = api.watch(JOBS, 5, lambda event: True, resourceVersion=forgotten.version)
    assert [event["type"] for event in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["kind"], status["reason"], status["code"]) == ("Status", "Expired", 410)


def test_a_page_of_a_list_that_is_no_longer_held(api, forgotten):
    api.get(JOBS, limit=1, **{"continue": forgotten.token}).refused(410, "Expired", "too old")


def test_tables_in_a_watch(api, name):
    since = version(api)

    def change():
        api.post(JOBS, job(name)).ok(201)
        api.patch(f"{JOBS}/{name}/status", {"status": {"phase": "Running"}}).ok()

    events = []
    api.watch(JOBS, 20, lambda event: events.append(event) or len(events) == 2, change, accept=TABLE, resourceVersion=since, fieldSelector=f"metadata.name={name}")
    assert [event["object"]["kind"] for event in events] == ["Table", "Table"]
    assert events[0]["object"]["columnDefinitions"] and not events[1]["object"].get("columnDefinitions"), "once"
    assert "Running" in events[1]["object"]["rows"][0]["cells"]
