"""Server-side apply: who owns which field."""

import json

import pytest

from api_client import APPLY, JOBS, PODS, job, pod


def apply(api, name, manager="one", force=None, metadata=None, **spec):
    thing = job(name, metadata, **spec)
    return api.patch(f"{JOBS}/{name}", thing, APPLY, fieldManager=manager, force=force)


def managers(answer):
    return {(each["manager"], each["operation"]) for each in answer["metadata"]["managedFields"]}


def test_it_creates(api, name):
    made = apply(api, name).ok(201)
    assert made["metadata"]["generation"] == 1 and managers(made) == {("one", "Apply")}
    entry = made["metadata"]["managedFields"][0]
    assert entry["fieldsType"] == "FieldsV1" and "f:workers" in entry["fieldsV1"]["f:spec"] and entry["apiVersion"] == "trainyard.dev/v1alpha1"


def test_again_it_changes_nothing(api, name):
    made = apply(api, name).ok(201)
    assert apply(api, name).ok()["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_body_in_yaml(api, name):
    text = f"apiVersion: trainyard.dev/v1alpha1\nkind: TrainingJob\nmetadata:\n  name: {name}\nspec:\n  workers: 3\n  template: {{spec: {{containers: [{{name: a, image: b}}]}}}}\n"
    assert api.patch(f"{JOBS}/{name}", text, APPLY, fieldManager="one").ok(201)["spec"]["workers"] == 3


def test_a_body_that_is_none(api, name):
    api.patch(f"{JOBS}/{name}", "a: [", APPLY, fieldManager="one").refused(400, "BadRequest")


def test_a_manager_has_a_name(api, name):
    answer = api.patch(f"{JOBS}/{name}", job(name), APPLY).refused(422, "Invalid", "is required for apply patch")
    assert answer.fields == ["fieldManager"]


def test_two_managers_conflict(api, name):
    apply(api, name, suspend=True).ok(201)
    answer = apply(api, name, "two", suspend=False).refused(409, "Conflict", 'conflict with "one"')
    assert ".spec.suspend" in answer["message"]
    assert answer["details"]["causes"][0]["reason"] == "FieldManagerConflict" and answer["details"]["causes"][0]["field"] == ".spec.suspend"
    assert api.get(f"{JOBS}/{name}").ok()["spec"]["suspend"] is True


def test_two_managers_agree(api, name):
    apply(api, name, suspend=True).ok(201)
    assert managers(apply(api, name, "two", suspend=True).ok()) == {("one", "Apply"), ("two", "Apply")}


def test_by_force(api, name):
    apply(api, name, suspend=True).ok(201)
    now = apply(api, name, "two", force="true", suspend=False).ok()
    assert now["spec"]["suspend"] is False
    fields = {each["manager"]: each["fieldsV1"]["f:spec"] for each in now["metadata"]["managedFields"]}
    assert "f:suspend" not in fields["one"] and "f:suspend" in fields["two"] and "f:workers" in fields["one"]


def test_what_a_manager_no_longer_says_goes(api, name):
    apply(api, name, metadata={"labels": {"a": "1"}}, cleanPodPolicy="All").ok(201)
    now = apply(api, name).ok()
    assert now["spec"].get("cleanPodPolicy") != "All" and not now["metadata"].get("labels")


def test_what_another_one_says_stays(api, name):
    apply(api, name, metadata={"labels": {"a": "1"}}).ok(201)
    apply(api, name, "two", metadata={"labels": {"a": "1"}}).ok()
    assert apply(api, name).ok()["metadata"]["labels"] == {"a": "1"}


def test_what_nobody_applied_stays(api, name):
    apply(api, name).ok(201)
    api.patch(f"{JOBS}/{name}", {"metadata": {"annotations": {"a": "1"}}}, fieldManager="hand").ok()
    assert apply(api, name).ok()["metadata"]["annotations"] == {"a": "1"}


def test_what_was_written_by_hand_conflicts(api, name):
    if api.kind == "memory":
        pytest.skip("the in-memory API keeps the fields of those who apply, and not of those who write: for each pod and each status that would be a record as long as itself")
    api.post(JOBS, job(name, suspend=True), fieldManager="hand").ok(201)
    apply(api, name, suspend=False).refused(409, "Conflict", 'conflict with "hand"')


def test_unknown_fields(api, name):
    answer = apply(api, name, workerz=1)
    assert answer.code in (400, 422, 500) and "workerz" in answer["message"], "an applier's fields have to be known"


def test_it_is_checked(api, name):
    apply(api, name, workers=0).refused(422, "Invalid", "spec.workers")


def test_a_dry_run(api, name):
    api.patch(f"{JOBS}/{name}", job(name), APPLY, fieldManager="one", dryRun="All").ok(201)
    api.get(f"{JOBS}/{name}").refused(404, "NotFound")


def test_the_name_is_the_paths(api, name):
    api.patch(f"{JOBS}/{name}", job("other"), APPLY, fieldManager="one").refused(400, "BadRequest", "does not match the name on the URL")


def test_a_pod(api, name):
    thing = pod(name, {"labels": {"a": "1"}})
    api.patch(f"{PODS}/{name}", json.dumps(thing), APPLY, fieldManager="one").ok(201)
    thing["metadata"]["labels"] = {"b": "1"}
    assert api.patch(f"{PODS}/{name}", json.dumps(thing), APPLY, fieldManager="one").ok()["metadata"]["labels"] == {"b": "1"}


@pytest.mark.parametrize("field, mine, theirs", [
    ("config", {"a": 1, "b": {"c": 2}}, {"b": {"d": 3}}),
    ("template", {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}, {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "trainer", "image": "x"}]}}),
])
def test_a_map_that_is_one_value(api, name, field, mine, theirs):
    made = apply(api, name, **{field: mine}).ok(201)
    assert made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"][f"f:{field}"] == {}
    answer = apply(api, name, "two", **{field: theirs}).refused(409, "Conflict", 'conflict with "one"')
    assert [cause["field"] for cause in answer["details"]["causes"] if field in cause["field"]] == [f".spec.{field}"]
    assert apply(api, name, "two", force="true", **{field: theirs}).ok()["spec"][field] == theirs
